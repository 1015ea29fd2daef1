// Server's secret, as a file holds it.
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace gpurun::tools {

// The variable that names the secret file when --secret-file does not.
inline constexpr const char* kSecretFileVariable = "GPURUN_SECRET_FILE";

// The file's bytes without an editor's line end, 16 to 4096 of them, as gpurund reads it. kRefused:
// others may read it. kInvalidArgument: too short or too long.
Result<Bytes> read_secret_file(const std::string& path);

// The run secret of this user's gpurund on this machine (protocol/auth/run_secret.h), for a run
// without a named secret. Empty: `server` (HOST[:PORT]) is not a loopback address. kUnavailable: no
// such file. kRefused: it is another user's, or others may read it. The message names the file.
Result<Bytes> read_run_secret(const std::string& server);

}  // namespace gpurun::tools
