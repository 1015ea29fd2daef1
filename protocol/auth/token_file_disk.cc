// Token file on the disk: checked before it is trusted, and replaced as a whole.
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/deadline.h"
#include "base/file_io.h"
#include "base/lock_file.h"
#include "base/unique_fd.h"
#include "base/user_folders.h"
#include "protocol/auth/token_file.h"

namespace gpurun::protocol {
namespace {

constexpr const char* kLockSuffix = ".lock";
// For a gpurund that marks the file as in use.
constexpr std::chrono::seconds kInUseDeadline{1};
constexpr int kAskAgainMilliseconds = 5;

FileStamp stamp_of(const struct stat& about) {
  return {about.st_dev, about.st_ino, static_cast<std::uint64_t>(about.st_size),
          std::int64_t{about.st_ctim.tv_sec} * 1'000'000'000 + about.st_ctim.tv_nsec};
}

// True when `owner` may decide which users come in. Root's tool keeps the file of another user's
// server.
bool may_be_trusted(uid_t owner, uid_t folders_owner, TokenFileUse use) {
  if (owner == geteuid() || owner == 0) return true;
  return use == TokenFileUse::kTool && geteuid() == 0 && owner == folders_owner;
}

Status not_trusted(const std::string& path, uid_t owner) {
  const std::string self =
      geteuid() == 0 ? "root" : "user " + std::to_string(geteuid()) + " or root";
  return Status(Code::kRefused, path + " belongs to user " + std::to_string(owner) +
                                    ". That user could let anybody in; it must be of " + self +
                                    ": chown " + (geteuid() == 0 ? "root " : "") + path);
}

Status check_folder(const std::string& path, const struct stat& about, TokenFileUse use) {
  if (!may_be_trusted(about.st_uid, about.st_uid, use)) return not_trusted(path, about.st_uid);
  if (S_ISDIR(about.st_mode) && (about.st_mode & 022) == 0) return {};
  return Status(Code::kRefused, path + " is not a folder that only its own user may write; chmod " +
                                    "go-w " + path);
}

Result<std::vector<TokenEntry>> read_from(int folder, const char* name, const std::string& path,
                                          uid_t folders_owner, TokenFileUse use) {
  const UniqueFd file(openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.valid() && errno == ENOENT) return std::vector<TokenEntry>();
  if (!file.valid() && errno == ELOOP) {
    return Status(Code::kRefused, path + " is a link; the users' tokens are kept in a file");
  }
  if (!file.valid()) return Status::from_errno(errno, path);
  struct stat about = {};
  if (fstat(file.get(), &about) != 0) return Status::from_errno(errno, path);
  if (!S_ISREG(about.st_mode)) return Status(Code::kRefused, path + " is no file");
  if (!may_be_trusted(about.st_uid, folders_owner, use)) return not_trusted(path, about.st_uid);
  if ((about.st_mode & 077) != 0) {
    return Status(Code::kRefused, path + ": others may read it; chmod 600 " + path);
  }
  const Result<std::string> text = read_text(file.get(), kTokenFileBytesMax, path);
  if (!text.ok()) return text.status();
  Result<std::vector<TokenEntry>> entries = parse_token_file(*text);
  if (!entries.ok()) {
    return Status(entries.status().code(), path + ": " + entries.status().message());
  }
  return entries;
}

// A file that root writes in another user's folder is for that user's daemon. A revoked token stays
// revoked when the power fails.
constexpr ReplaceOptions kReplaced = {0600, Durability::kContentAndName, true};

}  // namespace

FileStamp token_file_stamp(const std::string& path) {
  struct stat about = {};
  return lstat(path.c_str(), &about) == 0 ? stamp_of(about) : FileStamp();
}

// Needs only one descriptor, which a server keeps in reserve.
Result<std::vector<TokenEntry>> read_token_file(const std::string& path, TokenFileUse use) {
  const std::string parent = folder_of(path);
  struct stat around = {};
  if (stat(parent.c_str(), &around) != 0) {
    if (errno == ENOENT) return std::vector<TokenEntry>();
    return Status::from_errno(errno, parent);
  }
  GPURUN_RETURN_IF_ERROR(check_folder(parent, around, use));
  return read_from(AT_FDCWD, path.c_str(), path, around.st_uid, use);
}

Status update_token_file(const std::string& path,
                         const std::function<Status(std::vector<TokenEntry>*)>& change,
                         TokenFileUse use, std::chrono::milliseconds lock_wait) {
  const std::size_t slash = path.rfind('/');
  if (path.empty() || path[0] != '/' || slash + 1 == path.size()) {
    return Status(Code::kInvalidArgument, "'" + path + "' is no absolute path of a file");
  }
  const std::string parent = folder_of(path);
  const std::string name = path.substr(slash + 1);
  GPURUN_RETURN_IF_ERROR(make_folders(parent));
  const UniqueFd folder(open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat about = {};
  if (!folder.valid() || fstat(folder.get(), &about) != 0) return Status::from_errno(errno, parent);
  GPURUN_RETURN_IF_ERROR(check_folder(parent, about, use));
  const Result<UniqueFd> lock =
      lock_file(folder.get(), name + kLockSuffix, path + kLockSuffix, Deadline::in(lock_wait));
  if (!lock.ok()) return lock.status();
  Result<std::vector<TokenEntry>> entries =
      read_from(folder.get(), name.c_str(), path, about.st_uid, use);
  if (!entries.ok()) return entries.status();
  GPURUN_RETURN_IF_ERROR(change(&*entries));
  if (entries->size() > kTokensMax) {
    return Status(Code::kTooLarge, path + ": there may be 4096 tokens");
  }
  const std::string text = format_token_file(*entries);
  return replace_file_in(folder.get(), name, path, byte_view(text.data(), text.size()), kReplaced);
}

Result<UniqueFd> note_token_file_in_use(const std::string& path) {
  const std::string note = path + kInUseSuffix;
  GPURUN_RETURN_IF_ERROR(make_folders(folder_of(path)));
  UniqueFd file(open(note.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  // Shared: several gpurund of one user may read one file. gpuctl holds the lock only for a moment.
  const Deadline deadline = Deadline::in(kInUseDeadline);
  while (file.valid() && flock(file.get(), LOCK_SH | LOCK_NB) != 0) {
    if ((errno != EWOULDBLOCK && errno != EINTR) || deadline.passed()) {
      return Status::from_errno(errno, note);
    }
    poll(nullptr, 0, kAskAgainMilliseconds);
  }
  if (!file.valid()) return Status::from_errno(errno, note);
  return file;
}

bool token_file_is_in_use(const std::string& path) {
  const UniqueFd file(
      open((path + kInUseSuffix).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  // A mark that cannot be read counts as in use, so that no warning follows.
  if (!file.valid()) return errno != ENOENT;
  return flock(file.get(), LOCK_EX | LOCK_NB) != 0;
}

std::string default_token_file() {
  const std::string folder = state_folder();
  return folder.empty() ? folder : folder + "/tokens";
}

}  // namespace gpurun::protocol
