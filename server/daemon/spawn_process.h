// Processes of gpurund's own: started with nothing inherited but what they are given.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"

namespace gpurun::server {

// How one has ended that the kernel, or its own handler, ended for want of memory.
inline constexpr const char* kEndedForMemory = "its memory limit (worker-memory)";

// What is open in a child besides.
struct Descriptors {
  int output = -1;          // stdout; -1: /dev/null.
  int errors = -1;          // stderr; -1: ours.
  std::vector<int> handed;  // From kHandOverFd on.
};

// No core of this process is written, and its user's other processes cannot read its memory, where
// secrets are. What start_process() starts is as it would have been. Before the first of these.
void keep_memory_private();

// Ends with the thread that starts it. kResourceExhausted: no process.
Result<pid_t> start_process(std::vector<std::string> arguments,
                            std::vector<std::string> environment, Descriptors open_there);
// Waits for its end: "exit status 1", "signal 11 (Segmentation fault)"; empty when it ended well.
std::string reap(pid_t process);
// Whether start_process() has started it and reap() has not collected it yet. Any thread.
bool is_started(pid_t process);

}  // namespace gpurun::server
