// Address window, next-fit address ranges and page protection behind DeviceArena.
#include "emulated/objects/device_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "emulated/objects/memory_registry.h"

namespace gpurun::emulated {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kLarge = std::uint64_t{2} << 20;

// The kernel limits the mappings of a process (65,530 by default), and a guard page costs two.
// Later allocations beyond this number have no guard.
constexpr std::uint64_t kGuardedMax = 20'000;

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}
void* at(std::uint64_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

DeviceArena::DeviceArena(std::uint64_t bytes_total, int ledger_file)
    : bytes_total_(bytes_total), ledger_(ledger_file, bytes_total) {}

// Maps a file, so that a part can be shared. Maps anonymous memory when no file can be had.
void* DeviceArena::map_window(std::uint64_t span) {
  constexpr int kFlags = MAP_NORESERVE;
  void* window = MAP_FAILED;
  if (!file_.valid() && file_.create("gpurun-device", span)) {
    window = mmap(nullptr, span, PROT_NONE, MAP_SHARED | kFlags, file_.fd(), 0);
    if (window == MAP_FAILED) file_.close();
  }
  if (window != MAP_FAILED) return window;
  return mmap(nullptr, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | kFlags, -1, 0);
}

// Reserves twice the memory, so that fragmentation does not end a program before memory does.
// Reserves less under a limit on address space.
bool DeviceArena::reserve_window() {
  if (window_reserved_) return true;
  for (std::uint64_t span = round_up(bytes_total_, kLarge) * 2 + (std::uint64_t{1} << 30);
       span >= kLarge * 2; span = round_up(span / 2, kLarge)) {
    void* window = map_window(span);
    if (window == MAP_FAILED) continue;
    const auto start = reinterpret_cast<std::uint64_t>(window);
    memory_registry().add_device_addresses(start, span);
    free_.emplace(start, span);
    cursor_ = start;
    window_ = start;
    window_reserved_ = true;
    return true;
  }
  GPURUN_LOG(kError, "emulated device: no address space for %llu bytes of device memory",
             static_cast<unsigned long long>(bytes_total_));
  return false;
}

// First fit from the cursor on, so that freed addresses are not used again at once.
std::uint64_t DeviceArena::take_addresses(std::uint64_t span, std::uint64_t alignment) {
  auto fits = [&](const auto& range) {
    const std::uint64_t start = round_up(range.first, alignment);
    return start - range.first + span <= range.second ? start : 0;
  };
  auto found = free_.lower_bound(cursor_);
  std::uint64_t start = 0;
  for (std::size_t seen = 0; seen < free_.size(); ++seen, ++found) {
    if (found == free_.end()) found = free_.begin();
    if ((start = fits(*found)) != 0) break;
  }
  if (start == 0) return 0;
  const auto [base, length] = *found;
  free_.erase(found);
  if (start > base) free_.emplace(base, start - base);
  if (start + span < base + length) free_.emplace(start + span, base + length - start - span);
  cursor_ = start + span;
  return start;
}

void DeviceArena::give_addresses(std::uint64_t start, std::uint64_t span) {
  auto after = free_.lower_bound(start);
  if (after != free_.end() && after->first == start + span) {
    span += after->second;
    after = free_.erase(after);
  }
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == start) {
      before->second += span;
      return;
    }
  }
  free_.emplace(start, span);
}

std::uint64_t DeviceArena::allocate(std::uint64_t bytes) {
  if (bytes == 0 || bytes > bytes_total_) return 0;
  const std::uint64_t used = round_up(bytes, kPage);
  const std::uint64_t alignment = used >= kLarge ? kLarge : kPage;
  const std::lock_guard lock(mutex_);
  if (!reserve_window() || !ledger_.take(used)) return 0;
  const std::uint64_t guard = live_.size() < kGuardedMax ? kPage : 0;
  const std::uint64_t start = take_addresses(used + guard, alignment);
  if (start == 0 || mprotect(at(start), used, PROT_READ | PROT_WRITE) != 0) {
    if (start != 0) give_addresses(start, used + guard);
    ledger_.give(used);
    return 0;
  }
  live_.emplace(start, used + guard);
  return start;
}

void DeviceArena::free(std::uint64_t address, std::uint64_t bytes) {
  const std::uint64_t used = round_up(bytes, kPage);
  // Maps fresh pages over the old ones. The memory returns to the system, and a stale pointer
  // faults.
  if (file_.valid()) {
    if (madvise(at(address), used, MADV_REMOVE) != 0) std::memset(at(address), 0, used);
    mprotect(at(address), used, PROT_NONE);
  } else {
    mmap(at(address), used, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
         0);
  }
  const std::lock_guard lock(mutex_);
  if (const auto shared = shared_.find(address); shared != shared_.end()) {
    file_.strike(shared->second);
    shared_.erase(shared);
  }
  const auto live = live_.find(address);
  give_addresses(address, live->second);
  live_.erase(live);
  ledger_.give(used);
}

bool DeviceArena::share(std::uint64_t address, std::uint64_t bytes, int device, IpcHandle* handle) {
  const std::lock_guard lock(mutex_);
  if (!file_.valid() || !live_.contains(address)) return false;
  if (const auto known = shared_.find(address); known != shared_.end()) {
    *handle = known->second;
    return true;
  }
  if (!file_.enter(IpcKind::kMemory, address - window_, bytes, device, handle)) return false;
  shared_.emplace(address, *handle);
  return true;
}

int DeviceArena::shared_file() const {
  const std::lock_guard lock(mutex_);
  return file_.valid() ? file_.fd() : -1;
}

int DeviceArena::file_of(std::uint64_t address, std::uint64_t* offset) const {
  const std::lock_guard lock(mutex_);
  *offset = address - window_;
  return file_.valid() ? file_.fd() : -1;
}

bool DeviceArena::charge(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  return ledger_.take(bytes);
}

void DeviceArena::discharge(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  ledger_.give(bytes);
}

std::uint64_t DeviceArena::bytes_free() const {
  const std::lock_guard lock(mutex_);
  return ledger_.bytes_free();
}

}  // namespace gpurun::emulated
