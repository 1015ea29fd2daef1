// TableCache: reads a file as hostile input, and writes one under a temporary name, then renames
// it.
#include "client/interpose/modules/table_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/unique_fd.h"

namespace gpurun::client::interpose::modules {
namespace {

constexpr std::array<char, 16> kMagic = {'g', 'p', 'u', 'r', 'u', 'n', ' ',  't',
                                         'a', 'b', 'l', 'e', ' ', '1', '\n', '\0'};

struct Head {
  std::array<char, 16> magic = kMagic;
  Sha256Digest key{};
  Sha256Digest digest{};  // Of what follows.
  std::uint64_t bytes = 0;
};
static_assert(sizeof(Head) == 88);

std::string hex(const std::uint8_t* bytes, std::size_t count) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 15];
  }
  return text;
}
std::string name_of(const Sha256Digest& key) { return hex(key.data(), key.size()); }

// Only this user may write to the folder. An invalid descriptor means that nothing is kept.
UniqueFd open_folder(const std::string& path) {
  if (path.empty()) return UniqueFd();
  UniqueFd folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat about {};
  if (!folder.valid() || fstat(folder.get(), &about) != 0) return UniqueFd();
  if (about.st_uid == geteuid() && (about.st_mode & 077) == 0) return folder;
  GPURUN_LOG(kInfo, "%s is not kept to this user alone (mode 0700): it is not used", path.c_str());
  return UniqueFd();
}

bool read_all(int file, MutableBytes bytes) {
  while (!bytes.empty()) {
    const ssize_t got = read(file, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

bool write_all(int file, ByteView bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return true;
}

std::optional<protocol::ImageOutcome> read_table(int file, const Sha256Digest& key) {
  struct stat about {};
  const bool ours = fstat(file, &about) == 0 && S_ISREG(about.st_mode) &&
                    about.st_uid == geteuid() && (about.st_mode & 022) == 0;
  Head head;
  if (!ours || about.st_size < static_cast<off_t>(sizeof head) ||
      static_cast<std::uint64_t>(about.st_size) > TableCache::kFileBytesMax) {
    return std::nullopt;
  }
  const std::size_t payload_bytes = static_cast<std::size_t>(about.st_size) - sizeof head;
  if (!read_all(file, MutableBytes(reinterpret_cast<std::byte*>(&head), sizeof head))) {
    return std::nullopt;
  }
  if (head.magic != kMagic || head.key != key || head.bytes != payload_bytes) return std::nullopt;
  Bytes payload(payload_bytes);
  if (!read_all(file, payload) || sha256(payload) != head.digest) return std::nullopt;
  auto outcomes = protocol::unpack_outcomes(payload);
  if (!outcomes.ok() || outcomes->size() != 1) return std::nullopt;
  protocol::ImageOutcome& outcome = outcomes->front();
  if (outcome.result != 0 || outcome.missing) return std::nullopt;
  return std::move(outcome);
}

// Removes the oldest files if there are too many.
void make_room(int folder) {
  struct File {
    std::string name;
    timespec written{};
    std::size_t bytes = 0;
  };
  const int own = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (own < 0) return;
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(fdopendir(own), closedir);
  if (listing == nullptr) {
    close(own);
    return;
  }
  std::vector<File> files;
  std::size_t bytes = 0;
  while (const dirent* entry = readdir(listing.get())) {
    struct stat about {};
    if (entry->d_name[0] == '.' && (entry->d_name[1] == '\0' || entry->d_name[1] == '.')) continue;
    if (fstatat(folder, entry->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0) continue;
    files.push_back({entry->d_name, about.st_mtim, static_cast<std::size_t>(about.st_size)});
    bytes += files.back().bytes;
  }
  if (files.size() <= TableCache::kFilesMax && bytes <= TableCache::kBytesMax) return;
  std::sort(files.begin(), files.end(), [](const File& left, const File& right) {
    return std::pair(left.written.tv_sec, left.written.tv_nsec) <
           std::pair(right.written.tv_sec, right.written.tv_nsec);
  });
  // Removes a quarter at once, so that not every process has to clean up.
  std::size_t count = files.size();
  for (const File& file : files) {
    if (count <= TableCache::kFilesMax / 4 * 3 && bytes <= TableCache::kBytesMax / 4 * 3) return;
    if (unlinkat(folder, file.name.c_str(), 0) != 0) continue;
    --count;
    bytes -= file.bytes;
  }
}

std::string folder_of_user() {
  const auto variable = [](const char* name) {
    const char* value = secure_getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (variable("GPURUN_CACHE") == "off") return "";
  std::string base = variable("XDG_CACHE_HOME");
  if (base.empty() || base.front() != '/') {
    base = variable("HOME");
    if (base.empty() || base.front() != '/') return "";
    base += "/.cache";
  }
  return base + "/gpurun-kernels";
}

}  // namespace

Sha256Digest table_key(const Sha256Digest& image, const DeviceSnapshot& devices,
                       const Device& device, std::string_view server,
                       const std::string& server_release, std::string_view format) {
  Sha256 hash;
  const auto number = [&hash](std::int64_t value) { hash.update(bytes_of(value)); };
  const auto text = [&](std::string_view value) {
    number(static_cast<std::int64_t>(value.size()));
    hash.update(byte_view(value.data(), value.size()));
  };
  text(format);
  hash.update(byte_view(image.data(), image.size()));
  text(server.substr(0, server.rfind(':')));
  text(server_release);
  number(devices.driver_version());
  number(devices.emulated() ? 1 : 0);
  text(device.name);
  number(device.library_capability);
  for (const std::optional<int>& attribute : device.attributes) {
    number(attribute.has_value() ? *attribute : std::int64_t{1} << 40);
  }
  return hash.finish();
}

const TableCache& TableCache::of_user() {
  static const TableCache* const cache = new TableCache(folder_of_user());
  return *cache;
}

std::optional<protocol::ImageOutcome> TableCache::find(const Sha256Digest& key) const {
  const UniqueFd folder = open_folder(folder_);
  if (!folder.valid()) return std::nullopt;
  const std::string name = name_of(key);
  // A pipe in its place must not block the process.
  const UniqueFd file(
      openat(folder.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.valid() && errno == ENOENT) return std::nullopt;
  std::optional<protocol::ImageOutcome> outcome;
  if (file.valid()) outcome = read_table(file.get(), key);
  if (!outcome.has_value()) {
    GPURUN_LOG(kInfo, "%s/%s is no table of kernels: removed", folder_.c_str(), name.c_str());
    unlinkat(folder.get(), name.c_str(), 0);
  }
  return outcome;
}

void TableCache::add(const Sha256Digest& key, const protocol::ImageOutcome& outcome) const {
  if (folder_.empty()) return;
  Head head;
  head.key = key;
  const Bytes payload = protocol::pack(std::span<const protocol::ImageOutcome>(&outcome, 1));
  head.digest = sha256(payload);
  head.bytes = payload.size();
  if (sizeof head + payload.size() > kFileBytesMax) return;
  UniqueFd folder = open_folder(folder_);
  if (!folder.valid() && errno == ENOENT) {
    // XDG Base Directory Specification: the base folder is created too, for this user alone.
    const std::size_t slash = folder_.rfind('/');
    if (slash != 0) mkdir(folder_.substr(0, slash).c_str(), 0700);
    mkdir(folder_.c_str(), 0700);  // Another process may have created it just now.
    folder = open_folder(folder_);
  }
  std::uint8_t noise[8];
  if (!folder.valid() || getrandom(noise, sizeof noise, 0) != ssize_t{sizeof noise}) return;
  const std::string part = ".part-" + hex(noise, sizeof noise);
  const UniqueFd file(openat(folder.get(), part.c_str(),
                             O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid()) return;
  // No fsync, because each reader checks the hash.
  const bool whole = write_all(file.get(), bytes_of(head)) && write_all(file.get(), payload);
  if (!whole || renameat(folder.get(), part.c_str(), folder.get(), name_of(key).c_str()) != 0) {
    unlinkat(folder.get(), part.c_str(), 0);
    return;
  }
  // A check takes longer than an addition, and the program waits for it.
  if (noise[0] % kAddedPerLook == 0) make_room(folder.get());
}

}  // namespace gpurun::client::interpose::modules
