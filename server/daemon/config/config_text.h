// config_text(): the text of a configuration file, in ASCII, as toml++ can read it.
//
// The parser of toml++ 3.4.0 is that of 3.3: both have undefined behaviour for characters beyond
// ASCII and for tables without a name, so neither reaches them. This file can go with the first
// toml++ that reports an error for every invalid text of tests/fuzz/corpus/daemon_config.
#pragma once

#include <string>

#include "base/result.h"

namespace gpurun::server {

// kUnavailable: the file cannot be read. kInvalidArgument: the file is not a regular one, is over
// 1 MiB, or has a wrong line. "PATH:LINE: ..." then names the line. A table without a name is
// wrong. So are more than 64 dots in a line, and characters beyond ASCII outside comments and
// one-line strings.
Result<std::string> config_text(const std::string& path);

}  // namespace gpurun::server
