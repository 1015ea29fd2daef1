// Command line of gpurund, and the configuration file that it names.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "server/daemon/config/config.h"

namespace gpurun::server {

// For invalid options or settings. A restart does not help, so service managers need not try.
inline constexpr int kExitWrongUsage = 2;

struct CommandLine {
  std::string config_file;
  std::string worker_uids;
  bool verbose = false;
  bool fingerprint = false;
  bool log_given = false;  // Set by an option.
};

// Reads the file's settings, and then the command line's, which override them. Returns an exit
// status when the process should end: after --help, --version, or invalid options, which it has
// printed.
Result<std::optional<int>> read_command_line(int argc, char** argv, Config* config,
                                             CommandLine* words);

}  // namespace gpurun::server
