// Memory files with a book at their end, opened through /proc or handed over.
#include "emulated/objects/ipc_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "base/memory_file.h"
#include "base/random.h"

namespace gpurun::emulated {
namespace {

constexpr std::uint64_t kEntryBytes = 16;
constexpr std::uint64_t kBookBytes = IpcFile::kEntries * kEntryBytes;
// Above the numbers that programs expect to get.
constexpr int kDescriptorsFrom = 400;
// Bound of files that were handed over and not opened yet. Older ones make room.
constexpr std::size_t kAdoptedMax = 64;

struct Adopted {
  std::mutex mutex;
  std::map<std::string, UniqueFd> files;  // By the handle's bytes. Guarded by mutex.
};

Adopted& adopted() {
  static auto* const all = new Adopted;
  return *all;
}

std::string key_of(const IpcHandle& handle) {
  return {reinterpret_cast<const char*>(&handle), sizeof handle};
}

bool file_size_is_limited() {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY;
}

UniqueFd take_adopted(const IpcHandle& handle) {
  Adopted& all = adopted();
  const std::lock_guard lock(all.mutex);
  const auto found = all.files.find(key_of(handle));
  if (found == all.files.end()) return UniqueFd();
  UniqueFd file = std::move(found->second);
  all.files.erase(found);
  return file;
}

}  // namespace

bool IpcFile::create(const char* name, std::uint64_t bytes) {
  if (file_size_is_limited()) return false;  // Exceeding it raises a signal.
  Result<UniqueFd> low = create_sealable_memory_file(name);
  if (!low.ok() || ftruncate(low->get(), static_cast<off_t>(bytes + kBookBytes)) != 0) {
    return false;
  }
  // A process that maps the file must not lose its mapping.
  if (fcntl(low->get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) return false;
  UniqueFd high(fcntl(low->get(), F_DUPFD_CLOEXEC, kDescriptorsFrom));
  file_ = high.valid() ? std::move(high) : *std::move(low);
  identity_ = DescriptorIdentity::of(file_.get());
  book_ = bytes;
  return true;
}

bool IpcFile::write_entry(std::uint32_t entry, const std::array<std::uint8_t, 16>& nonce) {
  const auto at = static_cast<off_t>(book_ + entry * kEntryBytes);
  return pwrite(file_.get(), nonce.data(), nonce.size(), at) == static_cast<ssize_t>(nonce.size());
}

bool IpcFile::enter(IpcKind kind, std::uint64_t offset, std::uint64_t bytes, int device,
                    IpcHandle* handle) {
  struct stat about {};
  if (!identity_.holds(file_.get()) || fstat(file_.get(), &about) != 0) return false;
  std::uint32_t tries = 0;
  while (tries < kEntries && taken_[(next_ + tries) % kEntries]) ++tries;
  if (tries == kEntries) return false;
  IpcHandle made{};
  made.kind = kind;
  made.process = getpid();
  made.descriptor = file_.get();
  made.entry = (next_ + tries) % kEntries;
  made.offset = offset;
  made.bytes = bytes;
  made.device = static_cast<std::uint32_t>(device);
  made.file = about.st_ino;
  if (!fill_random(mutable_bytes(made.nonce.data(), made.nonce.size())).ok() ||
      !write_entry(made.entry, made.nonce)) {
    return false;
  }
  taken_[made.entry] = true;
  next_ = made.entry + 1;
  *handle = made;
  return true;
}

void IpcFile::strike(const IpcHandle& handle) {
  if (!identity_.holds(file_.get()) || handle.entry >= kEntries) return;
  if (write_entry(handle.entry, {})) taken_[handle.entry] = false;
}

UniqueFd open_ipc_file(const IpcHandle& handle) {
  if (handle.zero != 0 || handle.process <= 0 || handle.descriptor < 0 ||
      handle.entry >= IpcFile::kEntries) {
    return UniqueFd();
  }
  UniqueFd file = take_adopted(handle);
  if (!file.valid()) {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/fd/%d", handle.process, handle.descriptor);
    // The open must not block, whatever the file is.
    file.reset(open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!file.valid()) return UniqueFd();
  }
  struct stat about {};
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
  if (fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode) ||
      static_cast<std::uint64_t>(about.st_ino) != handle.file ||
      (fcntl(file.get(), F_GET_SEALS) & kSeals) != kSeals) {
    return UniqueFd();
  }
  const auto size = static_cast<std::uint64_t>(about.st_size);
  if (size < kBookBytes || handle.offset > size - kBookBytes ||
      handle.bytes > size - kBookBytes - handle.offset) {
    return UniqueFd();
  }
  std::array<std::uint8_t, 16> nonce{};
  const auto at = static_cast<off_t>(size - kBookBytes + handle.entry * kEntryBytes);
  if (pread(file.get(), nonce.data(), nonce.size(), at) != static_cast<ssize_t>(nonce.size())) {
    return UniqueFd();
  }
  const bool none =
      std::all_of(nonce.begin(), nonce.end(), [](std::uint8_t byte) { return byte == 0; });
  if (none || nonce != handle.nonce) return UniqueFd();
  return file;
}

bool is_ipc_file(int file) {
  struct stat about {};
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
  return fstat(file, &about) == 0 && S_ISREG(about.st_mode) &&
         (fcntl(file, F_GET_SEALS) & kSeals) == kSeals &&
         static_cast<std::uint64_t>(about.st_size) >= kBookBytes;
}

void adopt_ipc_file(const IpcHandle& handle, int file) {
  UniqueFd copy(fcntl(file, F_DUPFD_CLOEXEC, kDescriptorsFrom));
  if (!copy.valid()) return;
  Adopted& all = adopted();
  const std::lock_guard lock(all.mutex);
  if (all.files.size() >= kAdoptedMax) all.files.erase(all.files.begin());
  all.files[key_of(handle)] = std::move(copy);
}

}  // namespace gpurun::emulated
