// config_text(): the text of a configuration file, in ASCII, as toml++ can read it.
#pragma once

#include <string>

#include "base/result.h"

namespace gpurun::server {

// kUnavailable: the file cannot be read. kInvalidArgument, with "PATH:LINE: ...": a file of more
// than 1 MiB, a table without a name, or characters beyond ASCII outside comments and one-line
// strings.
Result<std::string> config_text(const std::string& path);

}  // namespace gpurun::server
