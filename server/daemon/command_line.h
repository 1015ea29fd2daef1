// gpurund's command line, and the file that it names.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "server/daemon/config.h"

namespace gpurun::server {

// Words or settings that mean nothing: starting again does not help, and service managers need not.
inline constexpr int kExitWrongUsage = 2;

struct CommandLine {
  std::string config_file;
  std::string worker_uids;
  bool verbose = false;
  bool fingerprint = false;
  bool log_told = false;  // By an option.
};

// The file's settings, then those of the words, which override them. An exit status: that is all
// (--help, --version, wrong words, which it has printed).
Result<std::optional<int>> read_command_line(int argc, char** argv, Config* config,
                                             CommandLine* words);

}  // namespace gpurun::server
