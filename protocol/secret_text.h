// Text that may hold a secret, and what of it may be shown.
//
// Options and variables take the name of a file with a token or a secret. Users give the token or
// the secret itself there, or as another argument. A message must not print it. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace gpurun::protocol {

// Whether `name`, given where a file is named, may be the token or secret itself: it holds a user's
// token, or has the length of a secret and does not look like a path. Looks at the folder that a
// path names. True in doubt.
bool may_be_secret(std::string_view name);

// Whether `text` holds what a user's token begins with, in whatever case: it is no name then.
bool holds_token_prefix(std::string_view text);

// `text` with "gpurun1_(hidden)" in place of each token, also of a damaged one.
std::string hide_tokens(std::string_view text);

}  // namespace gpurun::protocol
