// Orphans: an unreaped child keeps its process number, so a signal cannot reach another process.
#include "server/daemon/workers/orphans.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "server/daemon/workers/spawn_process.h"

namespace gpurun::server {
namespace {

constexpr timespec kBetweenLooks = {0, 1'000'000};

struct Facts {
  pid_t parent = -1;
  bool has_user = false;  // As any of its four user numbers.
};

Facts facts_of(pid_t process, uid_t user) {
  Facts facts;
  std::ifstream file("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (name == "PPid:") words >> facts.parent;
    if (name != "Uid:") continue;
    for (uid_t one = 0; words >> one;) facts.has_user = facts.has_user || one == user;
    break;  // PPid comes before it.
  }
  return facts;
}

std::vector<pid_t> all_processes() {
  std::vector<pid_t> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"), &closedir);
  if (folder == nullptr) return found;
  while (const dirent* entry = readdir(folder.get())) {
    pid_t process = 0;
    const char* const end = entry->d_name + std::strlen(entry->d_name);
    const auto [rest, error] = std::from_chars(entry->d_name, end, process);
    if (error == std::errc() && rest == end) found.push_back(process);
  }
  return found;
}

// Kills all orphans of `user`. Returns whether there were any.
bool kill_orphans(uid_t user) {
  bool left = false;
  for (const pid_t process : all_processes()) {
    if (is_started(process)) continue;
    const Facts facts = facts_of(process, user);
    if (facts.parent != getpid()) continue;
    if (facts.has_user) {
      left = true;
      kill(process, SIGKILL);
    }
    waitpid(process, nullptr, WNOHANG);
  }
  return left;
}

}  // namespace

Status adopt_orphans() {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) == 0) return {};
  return Status::from_errno(errno, "PR_SET_CHILD_SUBREAPER");
}

void reap_orphans() {
  if (getpid() != 1) return;
  // Of a process that is not a child, waitpid() knows nothing.
  for (const pid_t process : all_processes()) {
    if (!is_started(process)) waitpid(process, nullptr, WNOHANG);
  }
}

bool end_orphans(uid_t user, Deadline deadline) {
  while (kill_orphans(user)) {
    if (deadline.passed()) return false;
    nanosleep(&kBetweenLooks, nullptr);
  }
  return true;
}

}  // namespace gpurun::server
