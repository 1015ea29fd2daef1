// WriteWatch: the kernel's interface. Older headers lack its newer names
// (Documentation/admin-guide/mm/pagemap.rst and userfaultfd.rst of Linux 6.7).
#include "client/host_memory/write_watch.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "client/process/fork_guard.h"

namespace gpurun::client {
namespace {

constexpr int kUserModeOnly = 1;  // UFFD_USER_MODE_ONLY.
constexpr std::uint64_t kWriteProtectFaults = std::uint64_t{1}
                                              << 0;  // UFFD_FEATURE_PAGEFAULT_FLAG_WP.
constexpr std::uint64_t kUnpopulatedToo = std::uint64_t{1} << 13;   // UFFD_FEATURE_WP_UNPOPULATED.
constexpr std::uint64_t kAsynchronous = std::uint64_t{1} << 15;     // UFFD_FEATURE_WP_ASYNC.
constexpr std::uint64_t kModeWriteProtect = std::uint64_t{1} << 1;  // UFFDIO_REGISTER_MODE_WP.

// struct uffdio_writeprotect, UFFDIO_WRITEPROTECT and its mode.
struct WriteProtect {
  std::uint64_t start = 0, bytes = 0, mode = 0;
};
constexpr std::uint64_t kProtect = 1;
constexpr unsigned long kProtectRequest = _IOWR(0xAA, 0x06, WriteProtect);

// struct pm_scan_arg and struct page_region (linux/fs.h).
struct Region {
  std::uint64_t start = 0, end = 0, categories = 0;
};
struct Scan {
  std::uint64_t size = 0, flags = 0, start = 0, end = 0, walk_end = 0, vec = 0, vec_len = 0,
                max_pages = 0, category_inverted = 0, category_mask = 0, category_anyof_mask = 0,
                return_mask = 0;
};
constexpr unsigned long kScanRequest = _IOWR('f', 16, Scan);
constexpr std::uint64_t kProtectMatching = 1, kCheckAsynchronous = 2;  // PM_SCAN_...
constexpr std::uint64_t kIsWritten = std::uint64_t{1} << 1;            // PAGE_IS_WRITTEN.

int at_least(int fd, int fd_min) {
  if (fd < 0) return fd;
  const int high = fcntl(fd, F_DUPFD_CLOEXEC, fd_min);
  if (high < 0) return fd;
  close(fd);
  return high;
}

}  // namespace

bool is_private_memory(std::uint64_t address, std::uint64_t bytes) {
  std::FILE* const maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return false;
  const std::uint64_t end = address + bytes;
  std::uint64_t found = address;  // Memory up to here is private.
  std::array<char, 512> line{};
  while (found < end && std::fgets(line.data(), line.size(), maps) != nullptr) {
    std::uint64_t from = 0, to = 0;
    unsigned long inode = 0;
    std::array<char, 5> access{};
    if (std::sscanf(line.data(), "%lx-%lx %4s %*s %*s %lu", &from, &to, access.data(), &inode) !=
            4 ||
        to <= found) {
      continue;  // Also the rest of a long line.
    }
    if (from > found || access[3] != 'p' || inode != 0) break;
    found = to;
  }
  std::fclose(maps);
  return found >= end;
}

WriteWatch::~WriteWatch() {
  for (const auto& [fd, identity] :
       {std::pair(faults_, faults_identity_), std::pair(pagemap_, pagemap_identity_)}) {
    if (fd < 0) continue;
    fork_guard::forget(fd);
    if (identity.holds(fd)) close(fd);
  }
}

bool WriteWatch::open(int fd_min) {
  fork_guard::hold_off_forks();
  faults_ = at_least(
      static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | kUserModeOnly)), fd_min);
  if (faults_ >= 0) {
    fork_guard::watch(faults_);
    pagemap_ = at_least(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC), fd_min);
    if (pagemap_ >= 0) fork_guard::watch(pagemap_);
  }
  fork_guard::let_forks();
  if (pagemap_ < 0) return false;
  faults_identity_ = DescriptorIdentity::of(faults_);
  pagemap_identity_ = DescriptorIdentity::of(pagemap_);
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = kWriteProtectFaults | kUnpopulatedToo | kAsynchronous;
  if (ioctl(faults_, UFFDIO_API, &api) == 0) return true;
  fork_guard::forget(pagemap_);
  close(pagemap_);
  pagemap_ = -1;
  return false;
}

bool WriteWatch::works() const noexcept {
  return pagemap_ >= 0 && faults_identity_.holds(faults_) && pagemap_identity_.holds(pagemap_);
}

bool WriteWatch::begin(std::uint64_t address, std::uint64_t bytes) {
  if (!works()) return false;
  uffdio_register wanted{};
  wanted.range.start = address;
  wanted.range.len = bytes;
  wanted.mode = kModeWriteProtect;
  if (ioctl(faults_, UFFDIO_REGISTER, &wanted) != 0) return false;
  WriteProtect protect{address, bytes, kProtect};
  return ioctl(faults_, kProtectRequest, &protect) == 0;
}

void WriteWatch::end(std::uint64_t address, std::uint64_t bytes) {
  if (!works()) return;
  uffdio_range range{address, bytes};
  (void)ioctl(faults_, UFFDIO_UNREGISTER, &range);
}

// What the kernel does not walk is reported as written.
void WriteWatch::take_written(std::uint64_t address, std::uint64_t bytes,
                              std::vector<Pages>* written) {
  std::array<Region, 64> regions;
  const std::uint64_t end = address + bytes;
  while (address < end) {
    Scan scan;
    scan.size = sizeof scan;
    scan.flags = kProtectMatching | kCheckAsynchronous;
    scan.start = address;
    scan.end = end;
    scan.vec = reinterpret_cast<std::uintptr_t>(regions.data());
    scan.vec_len = regions.size();
    scan.category_mask = kIsWritten;
    scan.return_mask = kIsWritten;
    int count = -1;
    if (works()) {
      do {
        count = ioctl(pagemap_, kScanRequest, &scan);
      } while (count < 0 && errno == EINTR);
    }
    if (count < 0 || scan.walk_end <= address) {
      written->push_back({address, end - address});
      return;
    }
    for (int i = 0; i < count; ++i) {
      const Region& region = regions[static_cast<std::size_t>(i)];
      written->push_back({region.start, region.end - region.start});
    }
    address = scan.walk_end;
  }
}

}  // namespace gpurun::client
