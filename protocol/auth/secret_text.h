// Secret text: text that may hold a secret, and what may be shown of it.
//
// Options and variables take the name of a file with a token or a secret. Users give the token or
// the secret itself there, or as another argument. A message must not print it. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace gpurun::protocol {

// True when `name`, given in place of a file's name, may be the token or secret itself. It then
// holds a user's token, or has the length of a secret and does not look like a path. Checks the
// folder that a path names. True in doubt.
bool may_be_secret(std::string_view name);

// True when `text` holds the prefix of a user's token, in any case. Then it is not a name.
bool holds_token_prefix(std::string_view text);

// `text` with "gpurun1_(hidden)" in place of each token, even of a damaged one.
std::string hide_tokens(std::string_view text);

}  // namespace gpurun::protocol
