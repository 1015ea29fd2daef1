// Numbers are lent in turn, so that one that has just come back rests as long as possible.
#include "server/worker_uids.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

namespace gpurun::server {
namespace {

// The system calls themselves: the C library's functions change all threads of a process, and in
// the child of a process with threads there is only one.
bool become(uid_t uid) {
  return syscall(SYS_setresgid, uid, uid, uid) == 0 && syscall(SYS_setresuid, uid, uid, uid) == 0;
}

// Runs `action` in a child that has become `uid`; its exit status, or -1.
template <typename Action>
int as_user(uid_t uid, Action action) {
  const pid_t child = fork();
  if (child < 0) return -1;
  if (child == 0) {
    if (!become(uid)) _exit(1);
    action();
    _exit(0);
  }
  int status = 0;
  pid_t got = 0;
  do {
    got = waitpid(child, &status, 0);
  } while (got < 0 && errno == EINTR);
  if (got != child) return -1;
  // Killed by its own action: it had become the user.
  return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

}  // namespace

Status can_become(const UidRange& range) {
  for (const uid_t uid : {range.first, range.last}) {
    if (as_user(uid, [] {}) != 0) {
      return Status(Code::kRefused, "this process cannot become user " + std::to_string(uid) +
                                        " (not root, or a container without that number)");
    }
  }
  return Status();
}

Result<uid_t> WorkerUids::lend() {
  if (range_.none()) return uid_t{0};
  const std::lock_guard lock(mutex_);
  if (lent_.size() >= range_.count()) {
    return Status(Code::kResourceExhausted,
                  "all " + std::to_string(range_.count()) + " worker users are taken");
  }
  next_ = std::clamp(next_, range_.first, range_.last);
  while (!lent_.insert(next_).second) next_ = next_ == range_.last ? range_.first : next_ + 1;
  const uid_t uid = next_;
  next_ = uid == range_.last ? range_.first : uid + 1;
  return uid;
}

void WorkerUids::take_back(uid_t uid) {
  if (uid == 0) return;
  // All that this user may signal, which is all of its own and nothing else; not the caller.
  as_user(uid, [] { kill(-1, SIGKILL); });
  const std::lock_guard lock(mutex_);
  lent_.erase(uid);
}

}  // namespace gpurun::server
