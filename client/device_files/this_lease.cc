// ThisLease: reads the session file, and asks the client library by its marker.
#include "client/device_files/this_lease.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "base/file_io.h"
#include "base/memory_file.h"
#include "client/attach/session_data.h"
#include "driver_abi/client_view.h"

namespace gpurun::client::device_files {
namespace {

constexpr unsigned kMajor = 195;         // Of NVIDIA's devices (Linux, devices.txt).
constexpr unsigned kManagedMajor = 511;  // Linux gives nvidia-uvm a dynamic number from above.
constexpr std::size_t kFirstInode = 1'950'000;
constexpr int kUnknown = -1;

constinit std::atomic<int> leased{kUnknown};

// 0 for a file that cannot be read: the lease has ended.
int read_device_count() {
  const char* wanted = std::getenv(kVariable);
  const char* path = std::getenv(kSessionVariable);
  if (path == nullptr || (wanted != nullptr && std::strcmp(wanted, "off") == 0)) return 0;
  const Result<std::string> text = read_text_file(path, kSessionDataBytesMax);
  if (!text.ok() || text->compare(0, kSessionFirstLine.size(), kSessionFirstLine) != 0) return 0;
  constexpr std::string_view kLine = "\ndevices ";
  const std::size_t at = text->find(kLine);
  if (at == std::string::npos) return 0;
  int count = 0;
  const char* digits = text->c_str() + at + kLine.size();
  const auto parsed = std::from_chars(digits, text->c_str() + text->size(), count);
  return parsed.ec == std::errc() && count > 0 ? count : 0;
}

unsigned device_count() {
  int count = leased.load(std::memory_order_acquire);
  if (count == kUnknown) {
    count = read_device_count();
    leased.store(count, std::memory_order_release);
  }
  return static_cast<unsigned>(count);
}

const driver_abi::ClientView* view() {
  return driver_abi::client_view_beside(reinterpret_cast<const void*>(&device_count));
}

const driver_abi::NvmlSource* opened() {
  const driver_abi::ClientView* client = view();
  if (client == nullptr || client->nvml->open() != driver_abi::kNvmlSuccess) return nullptr;
  return client->nvml;
}

constexpr Lease kThisLease = {
    .device_count = device_count,
    .attached = [] { return view() != nullptr && view()->attached(); },
    .described_count =
        [] {
          const driver_abi::NvmlSource* source = opened();
          return source == nullptr ? 0 : source->device_count();
        },
    .describe =
        [](unsigned index, driver_abi::NvmlDevice* device) {
          const driver_abi::NvmlSource* source = opened();
          return source != nullptr && source->device(index, device) == driver_abi::kNvmlSuccess;
        },
    .driver_version =
        [] {
          const driver_abi::NvmlSource* source = opened();
          return source == nullptr ? "" : source->driver_version();
        },
};

}  // namespace

const Lease& this_lease() noexcept { return kThisLease; }

Entry shown_entry(const char* path) noexcept {
  if (path == nullptr || path[0] != '/') return {};
  const int before = errno;
  Entry entry;
  try {
    entry = find_entry(path, kThisLease);
  } catch (const std::bad_alloc&) {
    entry = {};
  }
  errno = before;
  return entry;
}

void fill_status(const Entry& entry, struct stat* status) noexcept {
  *status = {};
  // Nothing else in the folder has these numbers, and each entry has its own.
  status->st_ino = kFirstInode + 1'000 * static_cast<std::size_t>(entry.name) + entry.gpu;
  status->st_nlink = 1;
  status->st_blksize = 4096;
  switch (entry.kind()) {
    case Kind::kDevice:
      status->st_mode = S_IFCHR | 0666;
      status->st_rdev = entry.name == Name::kManagedMemory ? makedev(kManagedMajor, 0)
                                                           : makedev(kMajor, minor_number(entry));
      return;
    case Kind::kFile:
      status->st_mode = S_IFREG | 0444;
      return;
    case Kind::kFolder:
      status->st_mode = S_IFDIR | 0555;
      status->st_nlink = 2;
      return;
  }
}

int open_entry(const Entry& entry, int flags) noexcept {
  const auto failed = [](int number) {
    errno = number;
    return -1;
  };
  if (entry.kind() == Kind::kDevice) return failed(ENXIO);
  if (entry.kind() == Kind::kFolder) return failed(ENOENT);
  if ((flags & O_ACCMODE) != O_RDONLY) return failed(EACCES);
  try {
    const std::string content = content_of(entry, kThisLease);
    if (content.empty()) return failed(ENOENT);
    Result<UniqueFd> file = create_memory_file("gpurun-device-file");
    if (!file.ok()) return failed(ENOENT);
    if (!write_whole(file->get(), content, "device file").ok()) return failed(EIO);
    if (lseek(file->get(), 0, SEEK_SET) != 0) return failed(EIO);
    if ((flags & O_CLOEXEC) == 0) fcntl(file->get(), F_SETFD, 0);
    return file->release();
  } catch (const std::bad_alloc&) {
    return failed(ENOMEM);
  }
}

}  // namespace gpurun::client::device_files
