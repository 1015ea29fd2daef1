// The secret that a server wants to be known: made for a private server, read for any other.
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

// Hexadecimal digits of 32 random bytes.
Result<Bytes> make_secret();

}  // namespace gpurun::tools
