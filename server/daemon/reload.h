// Reloader: what SIGHUP does. It reads the configuration file again, under the same command line,
// and gives the running daemon what can change while it runs: bounds, certificate and key, the
// secret's file, insecure-plaintext and the log's level. What else differs is named in the log.
//
// All or nothing: after any error the daemon goes on with what it had. run()'s thread.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/result.h"
#include "server/daemon/command_line.h"
#include "server/daemon/config.h"
#include "server/daemon/daemon.h"

namespace gpurun::server {

// The words that gpurund was started with, and what its environment said then.
struct StartedWith {
  int argc = 0;
  char** argv = nullptr;
  std::optional<std::string> log_variable;  // GPURUN_LOG, which set_log_level() overwrites.
};

// The level that the configuration, the words and the environment come to. kInvalidArgument: the
// variable has another word.
Status choose_log_level(const CommandLine& words, const StartedWith& started, Config* config);
// Of this process and the workers that it starts. `level` is one of check_log().
void set_log_level(const std::string& level);

class Reloader {
 public:
  // `running`: what the daemon was started with.
  Reloader(StartedWith started, Config running)
      : started_(std::move(started)), running_(std::move(running)) {}

  // Logs what has become of it. False: nothing is changed.
  bool reload(Daemon& daemon);

 private:
  Result<ConfigChanges> adopt_file(Daemon& daemon);
  Config next(const Config& config, ConfigChanges* changes) const;

  const StartedWith started_;
  Config running_;
};

}  // namespace gpurun::server
