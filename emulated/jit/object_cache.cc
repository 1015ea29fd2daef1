// One file per object, named by the hash of its key. It is written under another name and renamed,
// so that readers see only complete files.
#include "emulated/jit/object_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/log.h"
#include "base/sha256.h"

namespace gpurun::emulated {
namespace {

constexpr char kMagic[8] = {'g', 'p', 'r', 'u', 'n', 'o', 'b', '1'};
constexpr std::uint64_t kObjectBytesMax = std::uint64_t{1} << 30;
constexpr char kTemporaryPrefix[] = "new.";
constexpr char kObjectSuffix[] = ".o";
constexpr time_t kTemporarySecondsMax = 3600;  // An older one is from a process that died.

struct FileHead {
  char magic[8];
  std::uint32_t stack_bytes;
  std::uint32_t needs_fibers;
  std::uint64_t object_bytes;
  std::uint8_t digest[32];  // Of the fields above and of the object.
};
static_assert(sizeof(FileHead) == 56);

Sha256Digest digest_of(const FileHead& head, std::string_view object) {
  Sha256 hash;
  hash.update(byte_view(&head, offsetof(FileHead, digest)));
  hash.update(byte_view(object.data(), object.size()));
  return hash.finish();
}

std::string file_name(std::string_view key_text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string name;
  for (std::uint8_t byte : sha256(byte_view(key_text.data(), key_text.size()))) {
    name += kHex[byte >> 4];
    name += kHex[byte & 15];
  }
  return name + kObjectSuffix;
}

bool read_all(int fd, void* into, std::size_t bytes) {
  auto* at = static_cast<char*>(into);
  while (bytes > 0) {
    const ssize_t got = read(fd, at, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

bool write_all(int fd, const void* from, std::size_t bytes) {
  const auto* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t put = write(fd, at, bytes);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    at += put;
    bytes -= static_cast<std::size_t>(put);
  }
  return true;
}

// False when the file is incomplete or not as written.
bool read_object(int fd, GeneratedCode* code) {
  FileHead head;
  struct stat facts;
  if (!read_all(fd, &head, sizeof head) || fstat(fd, &facts) != 0) return false;
  if (std::memcmp(head.magic, kMagic, sizeof kMagic) != 0) return false;
  if (head.object_bytes > kObjectBytesMax ||
      static_cast<std::uint64_t>(facts.st_size) != sizeof head + head.object_bytes) {
    return false;
  }
  code->object.resize(head.object_bytes);
  if (!read_all(fd, code->object.data(), code->object.size())) return false;
  const Sha256Digest digest = digest_of(head, code->object);
  if (std::memcmp(digest.data(), head.digest, digest.size()) != 0) return false;
  code->stack_bytes = head.stack_bytes;
  code->needs_fibers = head.needs_fibers != 0;
  return true;
}

struct StoredFile {
  std::string name;
  std::uint64_t bytes;
  timespec used;
};

}  // namespace

ObjectCache::ObjectCache(UniqueFd directory, std::uint64_t bytes_max)
    : directory_(std::move(directory)), bytes_max_(bytes_max) {}

Result<std::unique_ptr<ObjectCache>> ObjectCache::open(const std::string& directory,
                                                       std::uint64_t bytes_max) {
  const std::filesystem::path path(directory);
  std::error_code error;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return Status::from_errno(errno, directory);
  }
  UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat facts;
  if (!fd.valid() || fstat(fd.get(), &facts) != 0) return Status::from_errno(errno, directory);
  if (facts.st_uid != geteuid() || (facts.st_mode & 0022) != 0) {
    return Status(Code::kRefused, directory + " can be written by others");
  }
  std::unique_ptr<ObjectCache> cache(new ObjectCache(std::move(fd), bytes_max));
  cache->trim();
  return cache;
}

std::optional<GeneratedCode> ObjectCache::find(std::string_view key_text) {
  const std::string name = file_name(key_text);
  const UniqueFd fd(
      openat(directory_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return std::nullopt;
  GeneratedCode code;
  if (!read_object(fd.get(), &code)) {
    unlinkat(directory_.get(), name.c_str(), 0);
    return std::nullopt;
  }
  futimens(fd.get(), nullptr);  // Marks it as used, because trim() drops the oldest.
  return code;
}

void ObjectCache::store(std::string_view key_text, const GeneratedCode& code) {
  const std::uint64_t bytes = sizeof(FileHead) + code.object.size();
  if (code.object.size() > kObjectBytesMax || bytes > bytes_max_) return;
  FileHead head{};
  std::memcpy(head.magic, kMagic, sizeof kMagic);
  head.stack_bytes = code.stack_bytes;
  head.needs_fibers = code.needs_fibers ? 1 : 0;
  head.object_bytes = code.object.size();
  const Sha256Digest digest = digest_of(head, code.object);
  std::memcpy(head.digest, digest.data(), digest.size());
  const std::string temporary =
      kTemporaryPrefix + std::to_string(getpid()) + "." + std::to_string(next_name_++);
  const UniqueFd fd(openat(directory_.get(), temporary.c_str(),
                           O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd.valid()) return;
  const bool written = write_all(fd.get(), &head, sizeof head) &&
                       write_all(fd.get(), code.object.data(), code.object.size());
  if (!written || renameat(directory_.get(), temporary.c_str(), directory_.get(),
                           file_name(key_text).c_str()) != 0) {
    unlinkat(directory_.get(), temporary.c_str(), 0);
    return;
  }
  if ((stored_since_trim_ += bytes) > bytes_max_ / 16) trim();
}

void ObjectCache::trim() {
  const std::lock_guard<std::mutex> guard(trim_mutex_);
  stored_since_trim_ = 0;
  const UniqueFd lock(
      openat(directory_.get(), "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!lock.valid() || flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return;  // Another process trims.
  UniqueFd listed(openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* entries = listed.valid() ? fdopendir(listed.get()) : nullptr;
  if (entries == nullptr) return;
  (void)listed.release();  // closedir() closes it.
  std::vector<StoredFile> files;
  std::uint64_t total = 0;
  const time_t now = time(nullptr);
  while (const dirent* entry = readdir(entries)) {
    const std::string_view name = entry->d_name;
    struct stat facts;
    if (fstatat(directory_.get(), entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (name.starts_with(kTemporaryPrefix)) {
      if (now - facts.st_mtim.tv_sec > kTemporarySecondsMax) {
        unlinkat(directory_.get(), entry->d_name, 0);
      }
    } else if (name.ends_with(kObjectSuffix)) {
      files.push_back({entry->d_name, static_cast<std::uint64_t>(facts.st_size), facts.st_mtim});
      total += files.back().bytes;
    }
  }
  closedir(entries);
  if (total <= bytes_max_) return;
  std::sort(files.begin(), files.end(), [](const StoredFile& a, const StoredFile& b) {
    return a.used.tv_sec != b.used.tv_sec ? a.used.tv_sec < b.used.tv_sec
                                          : a.used.tv_nsec < b.used.tv_nsec;
  });
  const std::uint64_t wanted = bytes_max_ - bytes_max_ / 5;
  for (const StoredFile& file : files) {
    if (total <= wanted) break;
    if (unlinkat(directory_.get(), file.name.c_str(), 0) == 0) total -= file.bytes;
  }
}

}  // namespace gpurun::emulated
