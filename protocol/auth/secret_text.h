// Secret text: a server's secret in a file, text that may hold a secret, and what may be shown of
// it.
//
// Options and variables take the name of a file with a token or a secret. Users give the token or
// the secret itself there, or as another argument. A message must not print it. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

namespace gpurun::protocol {

// Reads a server's secret from `fd` to its end, without the line ends behind it. The caller has
// checked that no other user may read it. kInvalidArgument: it has not 16 to 4096 bytes. `name`
// names the file in messages.
Result<Bytes> read_secret_bytes(int fd, const std::string& name);

// True when `name`, given in place of a file's name, may be the token or secret itself. It then
// holds a user's token, or has the length of a secret and does not look like a path. Checks the
// folder that a path names. True in doubt.
bool may_be_secret(std::string_view name);

// True when `text` holds the prefix of a user's token, in any case. Then it is not a name.
bool holds_token_prefix(std::string_view text);

// `text` with "gpurun1_(hidden)" in place of each token, even of a damaged one.
std::string hide_tokens(std::string_view text);

}  // namespace gpurun::protocol
