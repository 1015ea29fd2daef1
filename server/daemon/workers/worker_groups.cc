// WorkerGroups: groups are folders, and their settings are lines in files.
#include "server/daemon/workers/worker_groups.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <vector>

#include "base/unique_fd.h"

namespace gpurun::server {
namespace {

constexpr std::uint64_t kTasksMax =
    4096;  // As RLIMIT_NPROC of server/worker/sandbox/confinement.cc.

Status failed(const std::string& path) {
  return Status(Code::kUnavailable, Status::from_errno(errno, path).message());
}

Status write_line(const std::string& path, const std::string& line) {
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.valid() ||
      write(file.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    return failed(path);
  }
  return {};
}

std::vector<std::string> words_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> words;
  for (std::string word; file >> word;) words.push_back(word);
  return words;
}

bool has(const std::vector<std::string>& words, const char* word) {
  for (const std::string& one : words) {
    if (one == word) return true;
  }
  return false;
}

// The line of version 2: "0::/system.slice/gpurund.service".
std::string own_group(const std::string& own) {
  std::ifstream file(own);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::/") && line.size() > 4) return line.substr(3);
  }
  return {};
}

}  // namespace

WorkerGroup::~WorkerGroup() {
  static_cast<void>(write_line(path_ + "/cgroup.kill", "1"));  // Linux 5.14.
  // Busy while a process in it is dying. Then it is empty, and is removed with the daemon's own
  // group.
  rmdir(path_.c_str());
}

Status WorkerGroup::limit_memory(std::uint64_t memory_bytes) const {
  if (memory_bytes == 0) return {};
  GPURUN_RETURN_IF_ERROR(write_line(path_ + "/memory.max", std::to_string(memory_bytes)));
  // Ends all of a worker at once, and keeps it out of swap. Older kernels may lack both.
  static_cast<void>(write_line(path_ + "/memory.oom.group", "1"));
  static_cast<void>(write_line(path_ + "/memory.swap.max", "0"));
  return {};
}

bool WorkerGroup::memory_struck() const {
  const std::vector<std::string> words = words_of(path_ + "/memory.events");
  for (std::size_t i = 0; i + 1 < words.size(); i += 2) {
    if (words[i] == "oom_kill") return words[i + 1] != "0";
  }
  return false;
}

Result<std::shared_ptr<WorkerGroups>> WorkerGroups::create(const std::string& hierarchy,
                                                           const std::string& own) {
  const std::string group = own_group(own);
  if (group.empty()) return Status(Code::kUnavailable, "this process has no group of version 2");
  const std::string path = hierarchy + group;
  const std::vector<std::string> controllers = words_of(path + "/cgroup.controllers");
  if (!has(controllers, "memory") || !has(controllers, "pids")) {
    return Status(Code::kUnavailable, path + " has no memory and pids (Delegate=memory pids)");
  }
  if (words_of(path + "/cgroup.procs") != std::vector<std::string>{std::to_string(getpid())}) {
    return Status(Code::kUnavailable, path + " is not this process's alone");
  }
  // Only groups without processes of their own may have subgroups with limits.
  const std::string daemon = path + "/daemon";
  if (mkdir(daemon.c_str(), 0755) != 0 && errno != EEXIST) return failed(daemon);
  GPURUN_RETURN_IF_ERROR(write_line(daemon + "/cgroup.procs", std::to_string(getpid())));
  GPURUN_RETURN_IF_ERROR(write_line(path + "/cgroup.subtree_control", "+memory +pids"));
  return std::shared_ptr<WorkerGroups>(new WorkerGroups(path));
}

Result<std::unique_ptr<WorkerGroup>> WorkerGroups::add(pid_t process) {
  const std::string path = path_ + "/worker-" + std::to_string(process);
  if (mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) return failed(path);
  auto group = std::make_unique<WorkerGroup>(path);
  GPURUN_RETURN_IF_ERROR(write_line(path + "/pids.max", std::to_string(kTasksMax)));
  GPURUN_RETURN_IF_ERROR(write_line(path + "/cgroup.procs", std::to_string(process)));
  return group;
}

}  // namespace gpurun::server
