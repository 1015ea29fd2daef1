// The secret that a server wants to be known, as a file holds it.
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace gpurun::tools {

// Names the secret file when --secret-file does not.
inline constexpr const char* kSecretFileVariable = "GPURUN_SECRET_FILE";

// The file's bytes without the line end of an editor, 16 to 4096 of them, as gpurund reads it.
// kRefused: others may read it. kInvalidArgument: too short or too long.
Result<Bytes> read_secret_file(const std::string& path);

// What a gpurund of this user's, on this machine, has made for its run (protocol/run_secret.h); for
// when no secret was named. Empty: `server` (HOST[:PORT]) is no loopback address. Else, with a
// sentence that names the file: kUnavailable, there is none; kRefused, it is another user's, or
// others may read it.
Result<Bytes> read_run_secret(const std::string& server);

}  // namespace gpurun::tools
