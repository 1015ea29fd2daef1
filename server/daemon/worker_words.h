// WorkerWords: what a worker says of itself on its stderr, which may be a stranger's code that says
// it; no more of it than a log may take, and nothing that a terminal would obey.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "base/unique_fd.h"

namespace gpurun::server {

class WorkerWords {
 public:
  WorkerWords(pid_t process, UniqueFd fd)
      : prefix_(kPrefix + std::to_string(process) + "]: "), fd_(std::move(fd)) {}

  int fd() const noexcept { return fd_.get(); }
  // To our stderr, each line under the worker's number.
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
