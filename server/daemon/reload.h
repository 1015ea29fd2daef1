// Reloader: handles SIGHUP. It reads the configuration file again, under the same command line. It
// changes what a running daemon can change: bounds, certificate and key, the secret's file,
// insecure-plaintext and the log's level. The log names other differences.
//
// All or nothing: after any error the daemon keeps its settings. run()'s thread.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/result.h"
#include "server/daemon/config/command_line.h"
#include "server/daemon/config/config_file.h"
#include "server/daemon/daemon.h"

namespace gpurun::server {

// The command line of gpurund, and the environment at its start.
struct StartedWith {
  int argc = 0;
  char** argv = nullptr;
  std::optional<std::string> log_variable;  // GPURUN_LOG, which set_log_level() overwrites.
};

// Sets the log level from the configuration, the command line and the environment.
// kInvalidArgument: the variable's value is unknown.
Status choose_log_level(const CommandLine& words, const StartedWith& started, Config* config);
// For this process and the workers that it starts. `level` has passed check_log().
void set_log_level(const std::string& level);

class Reloader {
 public:
  // `running` is the configuration with which the daemon was started.
  Reloader(StartedWith started, Config running)
      : started_(std::move(started)), running_(std::move(running)) {}

  // Logs the result. False: nothing has changed.
  bool reload(Daemon& daemon);

 private:
  Result<ConfigChanges> adopt_file(Daemon& daemon);
  Config next(const Config& config, ConfigChanges* changes) const;

  const StartedWith started_;
  Config running_;
};

}  // namespace gpurun::server
