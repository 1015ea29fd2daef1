// WorkerUids: numbers are lent in turn, so that a returned one stays unused as long as possible.
#include "server/daemon/workers/worker_uids.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/random.h"
#include "protocol/auth/proof.h"
#include "server/daemon/users/runtime_folder.h"

namespace gpurun::server {
namespace {

constexpr const char* kClaims = "worker-uids";

// Direct system calls: the C library's functions change all threads of a process, but the child of
// a process with threads has only one.
bool become(uid_t uid) {
  return syscall(SYS_setresgid, uid, uid, uid) == 0 && syscall(SYS_setresuid, uid, uid, uid) == 0;
}

// True when a child of ours can.
bool child_becomes(uid_t uid) {
  const pid_t child = fork();
  if (child < 0) return false;
  if (child == 0) _exit(become(uid) ? 0 : 1);
  int status = 0;
  pid_t got = 0;
  do {
    got = waitpid(child, &status, 0);
  } while (got < 0 && errno == EINTR);
  return got == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

Status can_become(const UidRange& range) {
  for (const uid_t uid : {range.first, range.last}) {
    if (!child_becomes(uid)) {
      return Status(Code::kRefused, "this process cannot become user " + std::to_string(uid) +
                                        " (without CAP_SETUID and CAP_SETGID, or in a container "
                                        "without that number)");
    }
  }
  return Status();
}

Result<std::shared_ptr<WorkerUids>> WorkerUids::open(UidRange range, const std::string& folder) {
  const Result<UniqueFd> place = open_runtime_folder(folder);
  if (!place.ok()) return place.status();
  const std::string path = folder + "/" + kClaims;
  UniqueFd file(
      openat(place->get(), kClaims, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!file.valid()) return Status::from_errno(errno, path);
  struct stat facts {};
  if (fstat(file.get(), &facts) != 0) return Status::from_errno(errno, path);
  // Another user that can write it could block every number.
  if (!S_ISREG(facts.st_mode) || facts.st_uid != geteuid() || (facts.st_mode & 077) != 0) {
    return Status(Code::kRefused, path + " is not a file of this user alone");
  }
  // Daemons that cannot see each other's claims then mostly start at different numbers.
  const auto random = random_array<std::array<std::uint8_t, 8>>();
  if (!random.ok()) return random.status();
  std::uint64_t number = 0;
  std::memcpy(&number, random->data(), sizeof number);
  const auto first = static_cast<uid_t>(range.first + number % range.count());
  return std::shared_ptr<WorkerUids>(new WorkerUids(range, std::move(file), first));
}

// False: another daemon's worker has it. Our own locks do not conflict with each other, so lent_
// records what we have lent.
Result<bool> WorkerUids::claim(uid_t uid) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(uid);
  lock.l_len = 1;
  if (fcntl(claims_.get(), F_OFD_SETLK, &lock) == 0) return true;
  if (errno == EAGAIN || errno == EACCES) return false;
  return Status::from_errno(errno, kClaims);
}

Result<uid_t> WorkerUids::lend() {
  const std::lock_guard lock(mutex_);
  for (std::uint64_t tried = 0; tried < range_.count(); ++tried) {
    next_ = std::clamp(next_, range_.first, range_.last);
    const uid_t uid = next_;
    next_ = uid == range_.last ? range_.first : uid + 1;
    if (lent_.count(uid) != 0) continue;
    const Result<bool> claimed = claim(uid);
    if (!claimed.ok()) return claimed.status();
    if (!*claimed) continue;
    lent_.insert(uid);
    return uid;
  }
  return Status(Code::kResourceExhausted,
                "all " + std::to_string(range_.count()) + " worker users are taken");
}

void WorkerUids::take_back(uid_t uid) {
  const std::lock_guard lock(mutex_);
  struct flock unlock {};
  unlock.l_type = F_UNLCK;
  unlock.l_whence = SEEK_SET;
  unlock.l_start = static_cast<off_t>(uid);
  unlock.l_len = 1;
  fcntl(claims_.get(), F_OFD_SETLK, &unlock);
  lent_.erase(uid);
}

}  // namespace gpurun::server
