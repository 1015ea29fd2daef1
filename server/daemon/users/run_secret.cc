// RunSecret: written under another name and renamed, so that no reader sees half of it.
#include "server/daemon/users/run_secret.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/file_io.h"
#include "protocol/auth/run_secret.h"
#include "server/daemon/users/runtime_folder.h"

namespace gpurun::server {
namespace {

// True when a running daemon holds it.
bool is_held(int folder, const std::string& name) {
  const UniqueFd file(openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  return file.valid() && flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

// For another daemon that is checking and writing, too.
constexpr std::chrono::seconds kFolderDeadline{10};
constexpr int kAskAgainMilliseconds = 5;

// A daemon checks whether a file is held, and then replaces it, under this lock. The lock ends with
// the returned descriptor.
Result<UniqueFd> lock_folder(int folder, const std::string& path) {
  UniqueFd own(openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!own.valid()) return Status::from_errno(errno, path);
  const Deadline deadline = Deadline::in(kFolderDeadline);
  while (flock(own.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return Status::from_errno(errno, path);
    if (deadline.passed()) return Status(Code::kDeadline, path + " is locked by another process");
    poll(nullptr, 0, kAskAgainMilliseconds);
  }
  return own;
}

}  // namespace

Result<std::unique_ptr<RunSecret>> RunSecret::create(const std::string& folder,
                                                     std::uint16_t port) {
  Result<UniqueFd> place = open_runtime_folder(folder);
  if (!place.ok()) return place.status();
  const std::string name = protocol::run_secret_name(port);
  const std::string path = folder + "/" + name;
  const Result<UniqueFd> alone = lock_folder(place->get(), folder);
  if (!alone.ok()) return alone.status();
  if (is_held(place->get(), name)) {
    return Status(Code::kRefused, path + " is another gpurund's, on another address");
  }
  Result<Bytes> secret = protocol::make_secret();
  if (!secret.ok()) return secret.status();
  const std::string draft = "." + name + "." + std::to_string(getpid());
  unlinkat(place->get(), draft.c_str(), 0);  // Of an ended process with our number.
  UniqueFd file(openat(place->get(), draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) return Status::from_errno(errno, path);
  Status made = flock(file.get(), LOCK_EX | LOCK_NB) == 0 ? write_whole(file.get(), *secret, path)
                                                          : Status::from_errno(errno, path);
  if (made.ok() && renameat(place->get(), draft.c_str(), place->get(), name.c_str()) != 0) {
    made = Status::from_errno(errno, path);
  }
  if (!made.ok()) {
    unlinkat(place->get(), draft.c_str(), 0);
    return made;
  }
  return std::unique_ptr<RunSecret>(
      new RunSecret(*std::move(place), name, std::move(file), *std::move(secret)));
}

RunSecret::~RunSecret() {
  struct stat ours {};
  struct stat there {};
  if (fstat(file_.get(), &ours) != 0 ||
      fstatat(folder_.get(), name_.c_str(), &there, AT_SYMLINK_NOFOLLOW) != 0) {
    return;
  }
  if (ours.st_dev == there.st_dev && ours.st_ino == there.st_ino) {
    unlinkat(folder_.get(), name_.c_str(), 0);
  }
}

}  // namespace gpurun::server
