// Processes of gpurund: they inherit nothing except what they are given.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"

namespace gpurun::server {

// The reason for a process that the kernel, or its own handler, ended for lack of memory.
inline constexpr const char* kEndedForMemory = "its memory limit (worker-memory)";

// The descriptors that are open in a child.
struct Descriptors {
  int output = -1;          // stdout; -1: /dev/null.
  int errors = -1;          // stderr. -1: ours.
  std::vector<int> handed;  // From kHandOverFd on.
};

// Prevents core files of this process, and other processes of its user from reading its memory,
// which holds secrets. Processes of start_process() are not affected. Call before start_process().
void keep_memory_private();

// From now on start_process() runs this file for its path, also after an upgrade has put another
// file there. The worker of a release belongs to its daemon. Call before start_process().
Status hold_program(const std::string& path);

// The process ends with the thread that starts it. kResourceExhausted: no process.
Result<pid_t> start_process(std::vector<std::string> arguments,
                            std::vector<std::string> environment, Descriptors open_there);
// Waits for its end. "exit status 1", "signal 11 (Segmentation fault)", or empty when it ended
// well.
std::string reap(pid_t process);
// True when start_process() has started it and reap() has not collected it yet. Any thread.
bool is_started(pid_t process);

}  // namespace gpurun::server
