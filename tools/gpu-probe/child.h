// Runs a piece of work in a process of its own: a driver that crashes or hangs takes that process.
#pragma once

#include <functional>
#include <string>

namespace gpurun::probe {

struct ChildResult {
  std::string output;  // What it wrote to the descriptor that it was given.
  bool timed_out = false;
  int signal = 0;  // That killed it, else 0.
  int exit_code = 0;
  double seconds = 0;
};

// Forks; `work` gets a descriptor to write to and its return value is the exit code. The parent
// must never have opened a driver. Waits at most `seconds_max`, then kills the child and what it
// started.
ChildResult run_child(int seconds_max, const std::function<int(int fd)>& work);

// "killed by signal 11 (Segmentation fault)", "no answer after 20 s", "exit code 3", or "".
std::string failure_of(const ChildResult& result);

}  // namespace gpurun::probe
