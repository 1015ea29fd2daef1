// WorkerGroups: a control group (cgroups(7), version 2) for each worker, where the service manager
// has delegated ours to us: the kernel then counts all memory of a worker, also what it shares or
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

// Of one worker. Its end kills what is left in it.
class WorkerGroup {
 public:
  explicit WorkerGroup(std::string path) : path_(std::move(path)) {}
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;
  ~WorkerGroup();

  // 0: any. kUnavailable.
  Status limit_memory(std::uint64_t memory_bytes) const;
  // Whether the kernel has ended something in it for want of memory.
  bool memory_struck() const;

 private:
  const std::string path_;
};

class WorkerGroups {
 public:
  // Moves this process, which must be alone in its group, into a part of it. `hierarchy`: where
  // groups are mounted; `own`: the file that names ours. kUnavailable: no group of version 2, one
  // that others are in or that is not ours to write, or one without memory and pids.
  static Result<std::shared_ptr<WorkerGroups>> create(
      const std::string& hierarchy = "/sys/fs/cgroup",
      const std::string& own = "/proc/self/cgroup");

  // Moves `process` into a group of its own, without a limit of memory. kUnavailable.
  Result<std::unique_ptr<WorkerGroup>> add(pid_t process);

 private:
  explicit WorkerGroups(std::string path) : path_(std::move(path)) {}

  const std::string path_;
};

}  // namespace gpurun::server
