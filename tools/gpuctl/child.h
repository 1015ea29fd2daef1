// Child: a command that gpuctl runs to its end, with its output.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"

namespace gpurun::tools {

struct ChildOptions {
  std::vector<std::string> command;      // The first word is a path, or a name of PATH.
  std::vector<std::string> environment;  // "NAME=value" on top of this process's variables.
  bool joined = false;                   // Its stderr goes to the same text as its stdout.
  Deadline deadline = Deadline::never();
  // Gets each whole line of stdout as it comes, without its end. Null: lines are not reported.
  std::function<void(std::string_view)> on_line = {};
};

struct ChildEnd {
  int status = 0;          // As of waitpid().
  bool timed_out = false;  // The deadline passed, and the child was killed.
  std::string output;      // stdout: the last kChildTextMax bytes.
  std::string errors;      // stderr: the last kChildTextMax bytes.

  bool succeeded() const;
};

inline constexpr std::size_t kChildTextMax = std::size_t{64} << 10;

// Runs the command with an empty stdin. Blocks until both of its outputs are closed, or until the
// deadline. At the deadline the child gets SIGTERM, and SIGKILL some seconds later. It gets SIGTERM
// also if this process dies. One thread. A command that cannot be executed ends with status 127. An
// error is that of pipe2() or fork().
Result<ChildEnd> run_child(const ChildOptions& options);

}  // namespace gpurun::tools
