// WorkerGroups: a control group (cgroups(7), version 2) for each worker, where the service manager
// has delegated ours to us. The kernel then counts all memory of a worker, also what it shares or
// has only in files, and all its tasks.
//
// One thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"

namespace gpurun::server {

// The group of one worker. Its destructor kills the processes that are left in it.
class WorkerGroup {
 public:
  explicit WorkerGroup(std::string path) : path_(std::move(path)) {}
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;
  ~WorkerGroup();

  // 0: no limit. kUnavailable.
  Status limit_memory(std::uint64_t memory_bytes) const;
  // True when the kernel has ended a process in it for lack of memory.
  bool memory_struck() const;

 private:
  const std::string path_;
};

class WorkerGroups {
 public:
  // Moves this process, which must be alone in its group, into a subgroup. `hierarchy` is where
  // groups are mounted, and `own` is the file that names ours. kUnavailable: no group of version 2,
  // one with other processes or without write access, or one without memory and pids.
  static Result<std::shared_ptr<WorkerGroups>> create(
      const std::string& hierarchy = "/sys/fs/cgroup",
      const std::string& own = "/proc/self/cgroup");

  // Moves `process` into a group of its own, without a memory limit. kUnavailable.
  Result<std::unique_ptr<WorkerGroup>> add(pid_t process);

 private:
  explicit WorkerGroups(std::string path) : path_(std::move(path)) {}

  const std::string path_;
};

}  // namespace gpurun::server
