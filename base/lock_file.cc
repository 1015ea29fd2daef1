// lock_file(): flock() has no timeout, so the lock is polled until the deadline.
#include "base/lock_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>

namespace gpurun {
namespace {

constexpr int kAskAgainMilliseconds = 5;

Result<UniqueFd> open_lock(int folder, const std::string& name, const std::string& path) {
  UniqueFd file(
      openat(folder, name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  if (!file.valid() && errno == ELOOP)
    return Status(Code::kRefused, path + " is a link; remove it");
  if (!file.valid()) return Status::from_errno(errno, path);
  struct stat about = {}, around = {};
  if (fstat(file.get(), &about) != 0 || fstat(folder, &around) != 0) {
    return Status::from_errno(errno, path);
  }
  const bool trusted =
      about.st_uid == geteuid() || about.st_uid == 0 || about.st_uid == around.st_uid;
  if (!S_ISREG(about.st_mode) || !trusted || (about.st_mode & 077) != 0) {
    return Status(Code::kRefused,
                  path + " is not a file that only its own user can open; remove it");
  }
  if (geteuid() == 0 && about.st_uid == 0 && around.st_uid != 0 &&
      fchown(file.get(), around.st_uid, around.st_gid) != 0) {
    return Status::from_errno(errno, path);
  }
  return file;
}

}  // namespace

Result<UniqueFd> lock_file(int folder, const std::string& name, const std::string& path,
                           Deadline deadline) {
  for (;; poll(nullptr, 0, kAskAgainMilliseconds)) {
    Result<UniqueFd> file = open_lock(folder, name, path);
    if (file.ok() && flock(file->get(), LOCK_EX | LOCK_NB) == 0) return file;
    const bool busy = file.ok() && (errno == EWOULDBLOCK || errno == EINTR);
    if (file.ok() && !busy) return Status::from_errno(errno, path);
    // Root has created the file and has not given it to this user yet.
    const bool not_ours_yet = !file.ok() && file.status().code() == Code::kRefused &&
                              faccessat(folder, name.c_str(), R_OK, AT_EACCESS) != 0 &&
                              errno == EACCES;
    if (!file.ok() && !not_ours_yet) return file;
    if (deadline.passed()) {
      return file.ok() ? Status(Code::kDeadline, path + " is locked by another process")
                       : file.status();
    }
  }
}

}  // namespace gpurun
