// Copy memory: ranges, windows, and the kernel's mappings where they must decide.
#include "client/interpose/driver/copy_memory.h"

#include <sys/mman.h>

#include "client/interpose/driver/arrays.h"
#include "client/interpose/memory/graph_memory.h"
#include "client/interpose/memory/memory_ranges.h"

namespace gpurun::client::interpose {
namespace {

// The usual bounds of a program's memory. The first address is Linux' vm.mmap_min_addr. The last is
// that of x86-64 with 4 levels of pages, which the kernel uses unless it is asked for more. Memory
// outside these bounds costs a system call to check.
constexpr std::uint64_t kUsualBegin = 64 << 10;
constexpr std::uint64_t kUsualEnd = std::uint64_t{1} << 47;

// The kernel looks only at its list of mappings for this call.
bool is_mapped(std::uint64_t address, std::uint64_t bytes) {
  constexpr std::uint64_t kPageSize = 4096;
  const std::uint64_t page = address & ~(kPageSize - 1);
  return msync(reinterpret_cast<void*>(page), address + bytes - page, MS_ASYNC) == 0;
}

// Whether host memory cannot lie there: null with an offset, an overflow, or a range that reaches
// into a window.
bool is_nowhere(std::uint64_t address, std::uint64_t bytes) {
  if (address + bytes < address || reaches_window(address, bytes)) return true;
  if (address >= kUsualBegin && address + bytes <= kUsualEnd) return false;
  return !is_mapped(address, bytes);
}

// Whether a copy leaves known device memory, which must hold all of it.
bool reaches_beyond(const EntryContext& here, const CopySide& side, const Copy& copy) {
  if (side.place == Place::kArray) {
    const ArrayBox box = {side.x, side.y, side.z, copy.width, copy.lines, copy.slices};
    return check_array_box(here, side.array, box) == Sound::kWrong;
  }
  const std::optional<std::uint64_t> bytes = extent(side, copy);
  if (!bytes.has_value()) return true;
  if (side.place == Place::kPinned || side.place == Place::kPageable) {
    return is_nowhere(side.address, *bytes);
  }
  const auto range = find_range(side.address);
  // In a window, only allocated memory is memory.
  if (!range.has_value()) return device_of_window(side.address) >= 0;
  if (!range->is_sure()) return false;  // Memory of graphs may share addresses.
  const bool whole = !range->on_host() || side.place == Place::kArena;
  return whole && !range->covers(side.address, *bytes);
}

}  // namespace

Place place_of(std::uint64_t address, std::uint64_t bytes) noexcept {
  bool held = false;
  const auto range = find_range(address, &held);
  if (!range.has_value()) {
    return held || device_of_window(address) >= 0 ? Place::kDevice : Place::kPageable;
  }
  if (range->kind == MemoryKind::kManaged || range->kind == MemoryKind::kView) {
    return Place::kArena;
  }
  if (!range->on_host()) return Place::kDevice;
  if (!range->covers(address, bytes)) return Place::kPageable;
  return range->reached ? Place::kArena : Place::kPinned;
}

Place place_on_device(std::uint64_t address) noexcept {
  if (!may_be_host_memory(address)) return Place::kDevice;
  const auto range = find_range(address);
  return range.has_value() && range->reached ? Place::kArena : Place::kDevice;
}

void enter_views(Copy* copy) noexcept {
  for (CopySide* side : {&copy->source, &copy->destination}) {
    if (side->place != Place::kPinned) continue;
    const auto range = find_range(side->address);
    if (!range.has_value() || range->view == 0) continue;
    side->place = Place::kArena;
    side->address = range->view + (side->address - range->base);
  }
}

void leave_arena(Copy* copy) noexcept {
  for (CopySide* side : {&copy->source, &copy->destination}) {
    if (side->place != Place::kArena) continue;
    const auto range = find_range(side->address);
    if (!range.has_value() || range->kind != MemoryKind::kView) continue;
    side->address = range->host + (side->address - range->base);
  }
  copy->leave_arena();
}

bool is_memory(const CopySide& side, std::uint64_t bytes) noexcept {
  return side.place != Place::kPageable || bytes == 0 ||
         (side.address + bytes > side.address && is_mapped(side.address, bytes));
}

int side_in_array(const EntryContext& here, CUarray array, std::uint64_t offset, CopySide* side) {
  side->place = Place::kArray;
  side->array = handle_of(array);
  side->x = offset;
  return here.check(side->array, HandleKind::kArray);
}

bool is_known(const EntryContext& here, const CopySide& side, const Copy& copy) {
  if (side.place != Place::kArray) return may_be_posted(here, side.address);
  const ArrayBox box = {side.x, side.y, side.z, copy.width, copy.lines, copy.slices};
  return check_array_box(here, side.array, box) == Sound::kRight;
}

bool is_found(const EntryContext& here, const CopySide& side, const Copy& copy) {
  if (side.place == Place::kArray) return is_known(here, side, copy);
  return find_range(side.address).has_value();
}

bool stays_inside(const EntryContext& here, const Copy& copy) {
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(copy.width, copy.lines, &bytes) ||
      __builtin_mul_overflow(bytes, copy.slices, &bytes) || bytes > limits::kBulkBytesMax) {
    return false;
  }
  const bool arrays = copy.source.place == Place::kArray && copy.destination.place == Place::kArray;
  if (arrays &&
      check_array_pair(here, copy.source.array, copy.destination.array) == Sound::kWrong) {
    return false;
  }
  return !reaches_beyond(here, copy.source, copy) && !reaches_beyond(here, copy.destination, copy);
}

}  // namespace gpurun::client::interpose
