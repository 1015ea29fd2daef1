// ImageFolder: all file access is by openat() and similar calls on the folder's descriptor.
#include "server/images/image_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "protocol/limits.h"

namespace gpurun::server {
namespace {

constexpr std::string_view kPartPrefix = "part-";
constexpr std::string_view kHexDigits = "0123456789abcdef";
constexpr std::size_t kCopyBytes = std::size_t{1} << 20;
// Making room takes milliseconds. A process that holds the lock for longer is suspended, so the
// caller gives up.
constexpr int kLockTries = 200;
constexpr timespec kLockPause = {0, 10'000'000};

std::string hex(const std::uint8_t* bytes, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    text += kHexDigits[bytes[i] >> 4];
    text += kHexDigits[bytes[i] & 15];
  }
  return text;
}

std::string name_of(const Sha256Digest& digest) { return hex(digest.data(), digest.size()); }

bool is_image_name(std::string_view name) {
  return name.size() == 2 * sizeof(Sha256Digest) &&
         name.find_first_not_of(kHexDigits) == std::string_view::npos;
}

std::string said(const std::string& path) { return Status::from_errno(errno, path).message(); }

bool only_ours(const struct stat& about) {
  return about.st_uid == geteuid() && (about.st_mode & 077) == 0;
}

// True for a regular file of ours alone, under one name, and at most as large as an image may be.
bool may_be_image(const struct stat& about) {
  return S_ISREG(about.st_mode) && only_ours(about) && about.st_nlink == 1 && about.st_size > 0 &&
         static_cast<std::uint64_t>(about.st_size) <= limits::kImageBytesMax;
}

// The bytes that a file counts for.
std::uint64_t charge(std::uint64_t bytes) {
  return (bytes + ImageFolder::kBlockBytes - 1) / ImageFolder::kBlockBytes *
         ImageFolder::kBlockBytes;
}

Status make_folders(const std::string& path) {
  for (std::size_t end = 1; end != std::string::npos;) {
    end = path.find('/', end);
    const std::string folder = path.substr(0, end);
    if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
      // A parent folder may exist where we may not create one.
      const int failure = errno;
      if (access(folder.c_str(), F_OK) != 0) return Status::from_errno(failure, folder);
    }
    if (end != std::string::npos) ++end;
  }
  return Status();
}

struct File {
  std::string name;
  std::uint64_t charge;
  timespec used;
};

bool earlier(const timespec& left, const timespec& right) {
  return left.tv_sec != right.tv_sec ? left.tv_sec < right.tv_sec : left.tv_nsec < right.tv_nsec;
}

// The images and parts. Nothing if the folder cannot be read.
std::optional<std::vector<File>> list(int folder) {
  // A descriptor of its own, because the read position belongs to the open folder.
  const int own = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* listing = own < 0 ? nullptr : fdopendir(own);
  if (listing == nullptr) {
    if (own >= 0) close(own);
    return std::nullopt;
  }
  std::vector<File> files;
  while (const dirent* entry = readdir(listing)) {
    const std::string_view name = entry->d_name;
    struct stat about;
    if (!is_image_name(name) && !name.starts_with(kPartPrefix)) continue;
    if (fstatat(folder, entry->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0) continue;
    files.push_back(
        {std::string(name), charge(static_cast<std::uint64_t>(about.st_size)), about.st_mtim});
  }
  closedir(listing);
  return files;
}

bool write_all(int fd, ByteView bytes) {
  while (!bytes.empty()) {
    const ssize_t done = write(fd, bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
  return true;
}

// Reads all `bytes` from `offset` on.
bool read_all(int fd, MutableBytes bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t done = pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(done));
    offset += static_cast<std::uint64_t>(done);
  }
  return true;
}

// Passes `bytes` of `source` to `take`, piece by piece. Returns whether all worked and the digest
// fits.
template <typename Take>
bool walk(int source, std::uint64_t bytes, const Sha256Digest& digest, Take take) {
  Sha256 hash;
  Bytes piece(static_cast<std::size_t>(std::min<std::uint64_t>(bytes, kCopyBytes)));
  for (std::uint64_t at = 0; at < bytes;) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(bytes - at, kCopyBytes));
    const MutableBytes run = MutableBytes(piece).first(count);
    if (!read_all(source, run, at) || !take(ByteView(run))) return false;
    hash.update(run);
    at += count;
  }
  return hash.finish() == digest;
}

// Locks among processes, only briefly.
class FolderLock {
 public:
  explicit FolderLock(int folder) : folder_(folder) {
    for (int tried = 0; !held_ && tried < kLockTries; ++tried) {
      held_ = flock(folder_, LOCK_EX | LOCK_NB) == 0;
      if (!held_ && errno != EWOULDBLOCK && errno != EINTR) return;
      if (!held_) nanosleep(&kLockPause, nullptr);
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

// A file that is being written. It is removed again unless it is finished.
class ImageFolder::Part {
 public:
  Part(ImageFolder& owner, UniqueFd file, std::string name)
      : owner_(&owner), file_(std::move(file)), name_(std::move(name)) {}
  Part(Part&& other) noexcept
      : owner_(other.owner_), file_(std::move(other.file_)), name_(std::move(other.name_)) {
    other.name_.clear();
  }
  Part& operator=(Part&&) = delete;
  ~Part() {
    if (!name_.empty()) unlinkat(owner_->folder_.get(), name_.c_str(), 0);
  }
  bool reserve(std::uint64_t bytes) {
    const auto size = static_cast<off_t>(bytes);
    if (fallocate(file_.get(), 0, 0, size) == 0) return true;
    // Not every file system supports this. Then at least the size shows how much it will take.
    if (errno == EOPNOTSUPP && ftruncate(file_.get(), size) == 0) return true;
    return not_kept();
  }
  bool write(ByteView bytes) { return write_all(file_.get(), bytes) || not_kept(); }
  void finish(const Sha256Digest& digest) {
    const int folder = owner_->folder_.get();
    // A process that lists the files to make room could otherwise miss it under either name.
    const std::lock_guard lock(owner_->mutex_);
    const FolderLock processes(folder);
    if (!processes.held()) return;
    if (renameat(folder, name_.c_str(), folder, name_of(digest).c_str()) == 0) {
      name_.clear();
    } else {
      not_kept();
    }
  }

 private:
  bool not_kept() const {
    spdlog::warn("an image is not kept: {}", said(owner_->path_));
    return false;
  }

  ImageFolder* owner_;
  UniqueFd file_;
  std::string name_;  // Empty: finished, or moved on.
};

Result<std::unique_ptr<ImageFolder>> ImageFolder::open(const std::string& path,
                                                       std::uint64_t bytes_max) {
  if (path.empty() || path.front() != '/') {
    return Status(Code::kInvalidArgument, "'" + path + "' is not an absolute path");
  }
  GPURUN_RETURN_IF_ERROR(make_folders(path));
  UniqueFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat about;
  if (!folder.valid() && (errno == ELOOP || errno == ENOTDIR)) {
    return Status(Code::kRefused, path + " is a link or no folder");
  }
  if (!folder.valid() || fstat(folder.get(), &about) != 0) return Status::from_errno(errno, path);
  if (!only_ours(about)) {
    return Status(Code::kRefused, path + ": make it this user's own, with mode 0700");
  }
  return std::unique_ptr<ImageFolder>(new ImageFolder(std::move(folder), path, bytes_max));
}

void ImageFolder::remove(const std::string& name, const char* why) const {
  spdlog::warn("{}: {} {}; it is removed", path_, name, why);
  if (unlinkat(folder_.get(), name.c_str(), 0) != 0 && errno != ENOENT) {
    spdlog::warn("{}", said(path_ + "/" + name));
  }
}

UniqueFd ImageFolder::open_image(const Sha256Digest& digest) {
  const std::string name = name_of(digest);
  // Opening a pipe in its place must not block.
  UniqueFd image(
      openat(folder_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!image.valid()) {
    if (errno == ELOOP) {
      remove(name, "is a link");
    } else if (errno != ENOENT) {
      spdlog::warn("{}", said(path_ + "/" + name));
    }
    return UniqueFd();
  }
  struct stat about {};
  const bool known = fstat(image.get(), &about) == 0;
  if (known && about.st_nlink == 0) return UniqueFd();  // Another process has just removed it.
  if (!known || !may_be_image(about)) {
    remove(name, "is not a file that this user alone may read and write, or of no image's size");
    return UniqueFd();
  }
  futimens(image.get(), nullptr);
  return image;
}

std::optional<Bytes> read_image(int image, const Sha256Digest& digest) {
  struct stat about;
  if (fstat(image, &about) != 0 || !S_ISREG(about.st_mode)) return std::nullopt;
  if (static_cast<std::uint64_t>(about.st_size) > limits::kImageBytesMax) return std::nullopt;
  Bytes bytes(static_cast<std::size_t>(about.st_size));
  if (!read_all(image, bytes, 0) || sha256(bytes) != digest) return std::nullopt;
  return bytes;
}

std::optional<Bytes> ImageFolder::find(const Sha256Digest& digest) {
  const UniqueFd image = open_image(digest);
  if (!image.valid()) return std::nullopt;
  std::optional<Bytes> bytes = read_image(image.get(), digest);
  if (!bytes.has_value()) remove(name_of(digest), "does not match its name");
  return bytes;
}

void ImageFolder::remove_if_damaged(const Sha256Digest& digest) {
  const UniqueFd image = open_image(digest);
  struct stat about;
  if (!image.valid() || fstat(image.get(), &about) != 0) return;
  const auto bytes = static_cast<std::uint64_t>(about.st_size);
  if (!walk(image.get(), bytes, digest, [](ByteView) { return true; })) {
    remove(name_of(digest), "does not match its name");
  }
}

bool ImageFolder::has(const Sha256Digest& digest) const {
  const std::string name = name_of(digest);
  struct stat about;
  if (fstatat(folder_.get(), name.c_str(), &about, AT_SYMLINK_NOFOLLOW) != 0) return false;
  if (!may_be_image(about)) return false;
  utimensat(folder_.get(), name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
  return true;
}

// With the lock held.
bool ImageFolder::make_room(std::uint64_t bytes) {
  std::optional<std::vector<File>> files = list(folder_.get());
  if (!files.has_value()) return false;
  std::uint64_t total = bytes;
  for (const File& file : *files) total += file.charge;
  std::size_t count = files->size() + 1;
  timespec abandoned{};
  clock_gettime(CLOCK_REALTIME, &abandoned);
  abandoned.tv_sec -= std::chrono::seconds(kAbandonedAfter).count();
  std::sort(files->begin(), files->end(),
            [](const File& left, const File& right) { return earlier(left.used, right.used); });
  for (const File& file : *files) {
    const bool part = !is_image_name(file.name);
    const bool over = total > bytes_max_ || count > kFilesMax;
    // Other processes write the other parts. Their future size is counted.
    if (part ? !earlier(file.used, abandoned) : !over) continue;
    if (unlinkat(folder_.get(), file.name.c_str(), 0) != 0 && errno != ENOENT) continue;
    total -= file.charge;
    --count;
  }
  return total <= bytes_max_ && count <= kFilesMax;
}

std::optional<ImageFolder::Part> ImageFolder::start(std::uint64_t bytes) {
  if (bytes == 0 || bytes > limits::kImageBytesMax || charge(bytes) > bytes_max_) {
    return std::nullopt;
  }
  std::uint8_t noise[8];
  if (getrandom(noise, sizeof noise, 0) != ssize_t{sizeof noise}) return std::nullopt;
  const std::string name = std::string(kPartPrefix) + hex(noise, sizeof noise);
  const std::lock_guard lock(mutex_);
  const FolderLock processes(folder_.get());
  if (!processes.held() || !make_room(charge(bytes))) {
    spdlog::info("{}: no room for an image of {} bytes", path_, bytes);
    return std::nullopt;
  }
  UniqueFd file(openat(folder_.get(), name.c_str(),
                       O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid()) {
    spdlog::warn("an image is not kept: {}", said(path_));
    return std::nullopt;
  }
  Part part(*this, std::move(file), name);
  // Space is reserved before the lock is released, so that others count it. A full disk is noticed
  // here.
  if (!part.reserve(bytes)) return std::nullopt;
  return part;
}

void ImageFolder::add(const Sha256Digest& digest, ByteView bundle) {
  if (has(digest)) return;
  std::optional<Part> part = start(bundle.size());
  if (part.has_value() && part->write(bundle)) part->finish(digest);
}

void ImageFolder::add_from(const Sha256Digest& digest, int source, std::uint64_t bytes) {
  if (has(digest)) return;
  std::optional<Part> part = start(bytes);
  if (!part.has_value()) return;
  if (walk(source, bytes, digest, [&part](ByteView run) { return part->write(run); })) {
    part->finish(digest);
  }
}

}  // namespace gpurun::server
