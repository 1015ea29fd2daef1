// WorkerLogRelay: relays what a worker writes to its stderr. A stranger's program may have written
// it, so its amount is bounded for the log, and it is made safe for a terminal.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "base/unique_fd.h"

namespace gpurun::server {

class WorkerLogRelay {
 public:
  WorkerLogRelay(pid_t process, UniqueFd fd)
      : prefix_(kPrefix + std::to_string(process) + "]: "), fd_(std::move(fd)) {}

  int fd() const noexcept { return fd_.get(); }
  // Copies it to our stderr, each line with the worker's number.
  void pass_on();

 private:
  static constexpr const char* kPrefix = "gpurun-worker[";

  void end();
  void take(std::string_view text);
  void flush();

  const std::string prefix_;
  UniqueFd fd_;
  std::string line_;
  std::size_t said_ = 0;
};

}  // namespace gpurun::server
