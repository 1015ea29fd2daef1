// Allocations of the null device, by address.
#include "tests/drivers/null/memory.h"

#include <sys/mman.h>

#include <map>
#include <mutex>
#include <new>

namespace gpurun::null_device {
namespace {

// Never destroyed, because programs call the driver from exit handlers.
struct Ranges {
  std::mutex mutex;
  std::map<std::uint64_t, Range> by_base;
  std::size_t device_bytes = 0;
};

Ranges& ranges() {
  alignas(Ranges) static unsigned char storage[sizeof(Ranges)];
  static auto* const all = new (storage) Ranges;
  return *all;
}

}  // namespace

std::uint64_t allocate(std::size_t bytes, MemoryKind kind) {
  if (bytes == 0 || bytes > kDeviceBytes) return 0;
  if (kind == MemoryKind::kDevice && used_device_bytes() + bytes > kDeviceBytes) return 0;
  const std::size_t rounded = (bytes + 4095) / 4096 * 4096;
  void* place = mmap(nullptr, rounded, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) return 0;
  const auto base = reinterpret_cast<std::uint64_t>(place);
  remember({base, bytes, kind});
  return base;
}

void remember(const Range& range) {
  Ranges& all = ranges();
  const std::lock_guard lock(all.mutex);
  all.by_base[range.base] = range;
  if (range.kind == MemoryKind::kDevice) all.device_bytes += range.bytes;
}

bool release(std::uint64_t base, MemoryKind kind) {
  Ranges& all = ranges();
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_base.find(base);
  if (found == all.by_base.end() || found->second.kind != kind) return false;
  const Range range = found->second;
  all.by_base.erase(found);
  if (kind == MemoryKind::kDevice) all.device_bytes -= range.bytes;
  if (kind != MemoryKind::kRegistered) {
    munmap(reinterpret_cast<void*>(base), (range.bytes + 4095) / 4096 * 4096);
  }
  return true;
}

std::optional<Range> range_of(std::uint64_t address) {
  Ranges& all = ranges();
  const std::lock_guard lock(all.mutex);
  auto next = all.by_base.upper_bound(address);
  if (next == all.by_base.begin()) return std::nullopt;
  const Range& range = (--next)->second;
  if (address - range.base >= range.bytes) return std::nullopt;
  return range;
}

std::size_t used_device_bytes() {
  Ranges& all = ranges();
  const std::lock_guard lock(all.mutex);
  return all.device_bytes;
}

bool charge(std::size_t bytes) {
  Ranges& all = ranges();
  const std::lock_guard lock(all.mutex);
  if (bytes > kDeviceBytes - all.device_bytes) return false;
  all.device_bytes += bytes;
  return true;
}

void discharge(std::size_t bytes) {
  Ranges& all = ranges();
  const std::lock_guard lock(all.mutex);
  all.device_bytes -= bytes;
}

}  // namespace gpurun::null_device
