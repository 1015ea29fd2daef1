// CacheFolder: all file access is by openat() and similar calls on the folder's descriptor.
#include "base/cache_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/file_io.h"
#include "base/hex.h"

namespace gpurun {
namespace {

constexpr std::string_view kPartPrefix = "part-";
constexpr std::size_t kNameDigits = 2 * sizeof(Sha256Digest);
// Making room takes milliseconds. A process that holds the lock for longer is suspended, so the
// caller gives up.
constexpr int kLockTries = 200;
constexpr timespec kLockPause = {0, 10'000'000};
// Of the bound: what one object adds before it looks again.
constexpr std::uint64_t kLooksPerBound = 16;

// What each file of find() and add() begins with.
struct Head {
  std::array<char, CacheFolder::kFormatBytes> format{};
  Sha256Digest key{};
  Sha256Digest digest{};    // Of the payload, which follows.
  std::uint64_t bytes = 0;  // Of the payload.
};
static_assert(sizeof(Head) == 88);

Head head_of(std::string_view format, const Sha256Digest& key) {
  Head head;
  format.copy(head.format.data(), head.format.size());
  head.key = key;
  return head;
}

// The bytes that a file counts for.
std::uint64_t charge(std::uint64_t bytes) {
  return (bytes + CacheFolder::kBlockBytes - 1) / CacheFolder::kBlockBytes *
         CacheFolder::kBlockBytes;
}

struct File {
  std::string name;
  std::uint64_t charge;
  timespec used;
};

bool earlier(const timespec& left, const timespec& right) {
  return left.tv_sec != right.tv_sec ? left.tv_sec < right.tv_sec : left.tv_nsec < right.tv_nsec;
}

// The files with names that `counts` accepts. Nothing if the folder cannot be read.
template <typename Counts>
std::optional<std::vector<File>> list(int folder, Counts counts) {
  // A descriptor of its own, because the read position belongs to the open folder.
  UniqueFd own(openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* listing = own.valid() ? fdopendir(own.get()) : nullptr;
  if (listing == nullptr) return std::nullopt;
  static_cast<void>(own.release());  // closedir() closes it.
  std::vector<File> files;
  while (const dirent* entry = readdir(listing)) {
    struct stat about;
    if (!counts(std::string_view(entry->d_name))) continue;
    if (fstatat(folder, entry->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0) continue;
    files.push_back(
        {entry->d_name, charge(static_cast<std::uint64_t>(about.st_size)), about.st_mtim});
  }
  closedir(listing);
  return files;
}

// Locks among processes, only briefly.
class FolderLock {
 public:
  FolderLock(int folder, int tries) : folder_(folder) {
    for (int tried = 0; !held_ && tried < tries; ++tried) {
      if (tried > 0) nanosleep(&kLockPause, nullptr);
      held_ = flock(folder_, LOCK_EX | LOCK_NB) == 0;
      if (!held_ && errno != EWOULDBLOCK && errno != EINTR) return;
    }
  }
  ~FolderLock() {
    if (held_) flock(folder_, LOCK_UN);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  bool held() const { return held_; }

 private:
  const int folder_;
  bool held_ = false;
};

}  // namespace

Result<std::unique_ptr<CacheFolder>> CacheFolder::open(const std::string& path,
                                                       const CacheRules& rules,
                                                       std::size_t missing_max) {
  GPURUN_RETURN_IF_ERROR(make_folders(path, 0700, missing_max));
  UniqueFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat about;
  if (!folder.valid() && (errno == ELOOP || errno == ENOTDIR)) {
    return Status(Code::kRefused, path + " is a link or no folder");
  }
  if (!folder.valid() || fstat(folder.get(), &about) != 0) return Status::from_errno(errno, path);
  const mode_t forbidden = rules.others_may_read ? 022 : 077;
  if (about.st_uid != geteuid() || (about.st_mode & forbidden) != 0) {
    return Status(Code::kRefused, path + ": make it this user's own, with mode 0700");
  }
  return std::unique_ptr<CacheFolder>(new CacheFolder(std::move(folder), path, rules));
}

std::string CacheFolder::name_of(const Sha256Digest& digest) const {
  return hex_of(bytes_of(digest)).append(rules_.suffix);
}

bool CacheFolder::is_entry_name(std::string_view name) const {
  return name.size() == kNameDigits + rules_.suffix.size() && name.ends_with(rules_.suffix) &&
         name.substr(0, kNameDigits).find_first_not_of("0123456789abcdef") ==
             std::string_view::npos;
}

// True for a regular file of ours alone, under one name, and of an entry's size.
bool CacheFolder::may_be_entry(const struct stat& about) const {
  return S_ISREG(about.st_mode) && about.st_uid == geteuid() && (about.st_mode & 077) == 0 &&
         about.st_nlink == 1 && about.st_size > 0 &&
         static_cast<std::uint64_t>(about.st_size) <= rules_.entry_bytes_max;
}

Status CacheFolder::remove_damaged(const Sha256Digest& digest, const char* why) const {
  const std::string name = name_of(digest);
  std::string message = path_ + "/" + name + " " + why;
  if (unlinkat(folder_.get(), name.c_str(), 0) == 0 || errno == ENOENT) {
    message += "; it is removed";
  } else {
    message += "; it cannot be removed: " + Status::from_errno(errno, path_).message();
  }
  return Status(Code::kProtocol, message);
}

Result<UniqueFd> CacheFolder::open_entry(const Sha256Digest& digest) const {
  const std::string name = name_of(digest);
  // Opening a pipe in its place must not block.
  UniqueFd entry(
      openat(folder_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!entry.valid()) {
    if (errno == ELOOP) return remove_damaged(digest, "is a link");
    return Status::from_errno(errno, path_ + "/" + name);
  }
  struct stat about;
  if (fstat(entry.get(), &about) != 0) return Status::from_errno(errno, path_ + "/" + name);
  // Another process has just removed it.
  if (about.st_nlink == 0) return Status::from_errno(ENOENT, path_ + "/" + name);
  if (!may_be_entry(about)) {
    return remove_damaged(digest, "is not a file of an entry's size that this user alone may read");
  }
  futimens(entry.get(), nullptr);
  return entry;
}

bool CacheFolder::has(const Sha256Digest& digest) const {
  const std::string name = name_of(digest);
  struct stat about;
  if (fstatat(folder_.get(), name.c_str(), &about, AT_SYMLINK_NOFOLLOW) != 0) return false;
  if (!may_be_entry(about)) return false;
  utimensat(folder_.get(), name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
  return true;
}

Result<Bytes> CacheFolder::find(std::string_view format, const Sha256Digest& key) const {
  const Result<UniqueFd> entry = open_entry(key);
  if (!entry.ok()) return entry.status();
  struct stat about;
  if (fstat(entry->get(), &about) != 0) return Status::from_errno(errno, path_);
  const auto size = static_cast<std::uint64_t>(about.st_size);
  const Head wanted = head_of(format, key);
  Head head;
  if (size < sizeof head || size > rules_.entry_bytes_max ||
      !read_part(entry->get(), mutable_bytes(&head, sizeof head), 0, path_).ok() ||
      head.format != wanted.format || head.key != key || head.bytes != size - sizeof head) {
    return remove_damaged(key, "is cut, or of another key or format");
  }
  Bytes payload(static_cast<std::size_t>(head.bytes));
  if (!read_part(entry->get(), payload, sizeof head, path_).ok() ||
      sha256(payload) != head.digest) {
    return remove_damaged(key, "is damaged");
  }
  return payload;
}

Status CacheFolder::add(std::string_view format, const Sha256Digest& key,
                        std::initializer_list<ByteView> payload) {
  Head head = head_of(format, key);
  Sha256 hash;
  for (const ByteView piece : payload) {
    hash.update(piece);
    head.bytes += piece.size();
  }
  head.digest = hash.finish();
  Result<Part> part = start(sizeof head + head.bytes);
  if (!part.ok()) return part.status();
  GPURUN_RETURN_IF_ERROR(part->write(bytes_of(head)));
  for (const ByteView piece : payload) GPURUN_RETURN_IF_ERROR(part->write(piece));
  return part->finish(key);
}

// With mutex_ held. `digits` are random.
bool CacheFolder::is_time_to_look(std::uint64_t bytes, const std::string& digits) {
  added_since_look_ += charge(bytes);
  const unsigned long random = std::stoul(digits.substr(0, 4), nullptr, 16);
  if (random % rules_.additions_per_look != 0 &&
      added_since_look_ <= rules_.bytes_max / kLooksPerBound) {
    return false;
  }
  added_since_look_ = 0;
  return true;
}

// With the locks held. Returns whether there is room for `bytes` in one more file.
bool CacheFolder::make_room(std::uint64_t bytes) const {
  const auto is_part = [](std::string_view name) { return name.starts_with(kPartPrefix); };
  std::optional<std::vector<File>> files = list(
      folder_.get(),
      [this, &is_part](std::string_view name) { return is_entry_name(name) || is_part(name); });
  if (!files.has_value()) return false;
  std::uint64_t total = bytes;
  for (const File& file : *files) total += file.charge;
  std::size_t count = files->size() + 1;
  std::uint64_t bytes_wanted = rules_.bytes_max;
  std::size_t files_wanted = rules_.files_max;
  if (!strict() && (total > bytes_wanted || count > files_wanted)) {
    bytes_wanted -= bytes_wanted / 4;
    files_wanted -= files_wanted / 4;
  }
  timespec abandoned{};
  clock_gettime(CLOCK_REALTIME, &abandoned);
  abandoned.tv_sec -= std::chrono::seconds(kAbandonedAfter).count();
  std::sort(files->begin(), files->end(),
            [](const File& left, const File& right) { return earlier(left.used, right.used); });
  for (const File& file : *files) {
    const bool over = total > bytes_wanted || count > files_wanted;
    // Other processes write the other parts. Their future size is counted.
    if (is_part(file.name) ? !earlier(file.used, abandoned) : !over) continue;
    if (unlinkat(folder_.get(), file.name.c_str(), 0) != 0 && errno != ENOENT) continue;
    total -= file.charge;
    --count;
  }
  return total <= rules_.bytes_max && count <= rules_.files_max;
}

Result<CacheFolder::Part> CacheFolder::start(std::uint64_t bytes) {
  const Status no_room(Code::kTooLarge,
                       path_ + ": no room for a file of " + std::to_string(bytes) + " bytes");
  if (bytes == 0 || bytes > rules_.entry_bytes_max || charge(bytes) > rules_.bytes_max) {
    return no_room;
  }
  const Result<std::string> digits = random_digits();
  if (!digits.ok()) return digits.status();
  std::string name(kPartPrefix);
  name += *digits;
  const std::lock_guard lock(mutex_);
  // If another process holds the lock now, it makes room. Only strict bounds must wait for it.
  const int tries = !is_time_to_look(bytes, *digits) ? 0 : strict() ? kLockTries : 1;
  const FolderLock processes(folder_.get(), tries);
  const bool has_room = processes.held() && make_room(charge(bytes));
  if (strict() && !has_room) return no_room;
  UniqueFd file(openat(folder_.get(), name.c_str(),
                       O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid()) return Status::from_errno(errno, path_);
  Part part(*this, std::move(file), std::move(name));
  // Space is reserved before the lock is released, so that others count it. A full disk is noticed
  // here.
  GPURUN_RETURN_IF_ERROR(part.reserve(bytes));
  return part;
}

CacheFolder::Part::~Part() {
  if (!name_.empty()) unlinkat(owner_->folder_.get(), name_.c_str(), 0);
}

Status CacheFolder::Part::reserve(std::uint64_t bytes) {
  const auto size = static_cast<off_t>(bytes);
  if (fallocate(file_.get(), 0, 0, size) == 0) return {};
  // Not every file system supports this. Then at least the size shows how much it will take.
  if (errno == EOPNOTSUPP && ftruncate(file_.get(), size) == 0) return {};
  return Status::from_errno(errno, owner_->path_);
}

Status CacheFolder::Part::write(ByteView bytes) {
  return write_whole(file_.get(), bytes, owner_->path_);
}

// No fsync, because each reader verifies what it reads.
Status CacheFolder::Part::finish(const Sha256Digest& digest) {
  const int folder = owner_->folder_.get();
  // A process that lists the files to make room could otherwise miss it under either name.
  const std::lock_guard lock(owner_->mutex_);
  const FolderLock processes(folder, owner_->strict() ? kLockTries : 0);
  if (owner_->strict() && !processes.held()) {
    return Status(Code::kDeadline, owner_->path_ + " is locked by another process");
  }
  if (renameat(folder, name_.c_str(), folder, owner_->name_of(digest).c_str()) != 0) {
    return Status::from_errno(errno, owner_->path_);
  }
  name_.clear();
  return {};
}

}  // namespace gpurun
