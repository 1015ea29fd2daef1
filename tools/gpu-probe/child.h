// run_child(): runs work in a process of its own, so that a crash or hang of a driver ends only
// that process.
#pragma once

#include <functional>
#include <string>

namespace gpurun::probe {

struct ChildResult {
  std::string output;  // What it wrote to its descriptor.
  bool timed_out = false;
  int signal = 0;  // The signal that killed it, else 0.
  int exit_code = 0;
  double seconds = 0;
};

// Forks. `work` gets a descriptor to write to, and returns the exit code. The parent must never
// have opened a driver. Waits at most `seconds_max`, and then kills the child and its descendants.
ChildResult run_child(int seconds_max, const std::function<int(int fd)>& work);

// "killed by signal 11 (Segmentation fault)", "no answer after 20 s", "exit code 3", or "".
std::string failure_of(const ChildResult& result);

}  // namespace gpurun::probe
