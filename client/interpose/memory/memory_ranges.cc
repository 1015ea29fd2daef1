// MemoryRanges: ranges ordered by their starts, found by any address within.
#include "client/interpose/memory/memory_ranges.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "base/address_parts.h"
#include "base/log.h"
#include "client/interpose/memory/used_memory.h"
#include "client/process/fork_guard.h"

namespace gpurun::client::interpose {
namespace {

// Drivers sub-allocate small allocations from blocks of this size.
constexpr std::uint64_t kBlockBytes = std::uint64_t{2} << 20;
constexpr std::uint64_t kPageBytes = 4096;
constexpr auto kEndOf = [](std::uint64_t end) { return end; };

struct Ranges {
  std::mutex mutex;
  std::map<std::uint64_t, MemoryRange> by_base;    // Guarded by mutex.
  std::map<std::uint64_t, std::uint64_t> blocked;  // Start to end, disjoint. Guarded by mutex.
  // The parts of `blocked` that could be mapped, start to end. Guarded by mutex.
  std::map<std::uint64_t, std::uint64_t> held;
  // Those of hold_addresses(), start to end. They are or become windows. Guarded by mutex.
  std::map<std::uint64_t, std::uint64_t> kept_for_windows;
  std::uint64_t last_buffer_id = 0;  // Guarded by mutex.
};

// Changes with by_base, under the mutex. A range that a thread found stays valid while this version
// stays the same.
std::atomic<std::uint64_t> g_version{1};
void ranges_changed() noexcept { g_version.fetch_add(1, std::memory_order_release); }

// The ranges that this thread found last. A loop uses the same few, without the mutex.
struct Found {
  std::uint64_t version = 0;
  MemoryRange range;
};
constexpr std::size_t kFoundKept = 4;
constinit thread_local std::array<Found, kFoundKept> t_found{};
constinit thread_local std::size_t t_next_found = 0;

// Device memory of the program's own counts as used.
void count_used(const MemoryRange& range, bool added) noexcept {
  if (range.kind != MemoryKind::kDevice && range.kind != MemoryKind::kPool) return;
  count_range(range.ordinal, range.bytes, added);
}

// The span that contains all host memory that the program ever pinned or registered. None: the
// start is the greatest address.
std::atomic<std::uint64_t> g_host_start{~std::uint64_t{0}};
std::atomic<std::uint64_t> g_host_end{0};

std::atomic<bool> g_graph_memory{false};

// The mutex must be held.
void host_memory_added(const MemoryRange& range) noexcept {
  if (range.base < g_host_start.load(std::memory_order_relaxed)) g_host_start.store(range.base);
  const std::uint64_t end = range.base + range.bytes;
  if (end > g_host_end.load(std::memory_order_relaxed)) g_host_end.store(end);
}

// Base 0: no window.
std::atomic<std::uint64_t> g_window_bases[kWindowedDevicesMax];
std::atomic<std::uint64_t> g_window_ends[kWindowedDevicesMax];
std::atomic<int> g_window_places{0};  // One past the last device that has a window.

// Never destroyed, because calls come after exit handlers have run. A forked child makes its own.
std::atomic<Ranges*> g_ranges{nullptr};

// Unmaps the windows for the child's own session. The ranges stay where they are, because a thread
// that does not exist in the child may hold their mutex.
void forget_parents_ranges() {
  const int places = g_window_places.exchange(0, std::memory_order_acq_rel);
  for (int device = 0; device < places; ++device) {
    const std::uint64_t base = g_window_bases[device].exchange(0, std::memory_order_acq_rel);
    const std::uint64_t end = g_window_ends[device].load(std::memory_order_relaxed);
    if (base != 0) munmap(reinterpret_cast<void*>(base), end - base);
  }
  g_ranges.store(nullptr, std::memory_order_release);
  ranges_changed();
}

Ranges& ranges() {
  Ranges* found = g_ranges.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  fork_guard::in_each_child(&forget_parents_ranges);
  auto* const made = new Ranges;
  if (g_ranges.compare_exchange_strong(found, made, std::memory_order_acq_rel)) return *made;
  delete made;
  return *found;
}

bool map_at(std::uint64_t start, std::uint64_t end, int access) {
  void* const wanted = reinterpret_cast<void*>(start);
  // The kernel maps at this hint when the place is free. Not MAP_FIXED_NOREPLACE, which older
  // kernels do not know. ThreadSanitizer changes an address that it cannot watch, but keeps that
  // flag.
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (access == PROT_NONE ? MAP_NORESERVE : 0);
  void* const got = mmap(wanted, end - start, access, flags, -1, 0);
  if (got == MAP_FAILED) return false;
  if (got == wanted) return true;
  munmap(got, end - start);
  return false;
}

bool map_nothing(std::uint64_t start, std::uint64_t end) { return map_at(start, end, PROT_NONE); }

// Replaces memory of this process's own.
bool map_over(std::uint64_t start, std::uint64_t end, int access) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (access == PROT_NONE ? MAP_NORESERVE : 0);
  return mmap(reinterpret_cast<void*>(start), end - start, access, flags | MAP_FIXED, -1, 0) !=
         MAP_FAILED;
}

// Removes [begin, end) from ranges, start to end.
void cut(std::map<std::uint64_t, std::uint64_t>& ranges, std::uint64_t begin, std::uint64_t end) {
  auto at = first_range_beyond(ranges, begin, kEndOf);
  while (at != ranges.end() && at->first < end) {
    const AddressPart part{at->first, at->second};
    at = ranges.erase(at);
    if (part.begin < begin) ranges[part.begin] = begin;
    if (part.end > end) ranges[end] = part.end;
  }
}

// Blocks addresses for the life of the process, because the device will use them again and an
// inaccessible mapping costs nothing. The mutex must be held.
void block(Ranges& all, std::uint64_t base, std::uint64_t bytes) {
  std::uint64_t start = base & ~(kBlockBytes - 1);
  const std::uint64_t last = (base + bytes + kBlockBytes - 1) & ~(kBlockBytes - 1);
  while (start < last) {
    const auto next = all.blocked.upper_bound(start);
    if (next != all.blocked.begin() && std::prev(next)->second > start) {
      start = std::prev(next)->second;
      continue;
    }
    const std::uint64_t end = next == all.blocked.end() ? last : std::min(last, next->first);
    if (map_nothing(start, end)) {
      all.held[start] = end;
    } else {
      // Memory of the program is near. Block only the device's pages.
      const std::uint64_t page = std::max(start, base & ~(kPageBytes - 1));
      const std::uint64_t page_end =
          std::min(end, (base + bytes + kPageBytes - 1) & ~(kPageBytes - 1));
      if (page < page_end && map_nothing(page, page_end)) {
        all.held[page] = page_end;
      } else if (page < page_end) {
        GPURUN_LOG(kInfo, "device memory at 0x%llx has the address of memory of this process",
                   static_cast<unsigned long long>(page));
      }
    }
    all.blocked[start] = end;
    start = end;
  }
}

// The mutex must be held.
std::optional<MemoryRange> range_at(const Ranges& all, std::uint64_t address) {
  const auto next = all.by_base.upper_bound(address);
  if (next == all.by_base.begin()) return std::nullopt;
  const MemoryRange& range = std::prev(next)->second;
  if (address - range.base >= range.bytes) return std::nullopt;
  return range;
}

// Needs no mutex. nullptr: search under the mutex.
const MemoryRange* found_before(std::uint64_t address) noexcept {
  const std::uint64_t version = g_version.load(std::memory_order_acquire);
  for (const Found& each : t_found) {
    if (each.version == version && address - each.range.base < each.range.bytes) {
      return &each.range;
    }
  }
  return nullptr;
}

// The mutex must be held.
std::optional<MemoryRange> find_and_keep(const Ranges& all, std::uint64_t address) {
  std::optional<MemoryRange> range = range_at(all, address);
  if (range.has_value()) {
    t_found[t_next_found++ % kFoundKept] = {g_version.load(std::memory_order_relaxed), *range};
  }
  return range;
}

constexpr auto kEndOfRange = [](const MemoryRange& range) { return range.base + range.bytes; };

// Whether memory other than that of graphs is in [begin, end). The mutex must be held.
bool is_in_use(Ranges& all, std::uint64_t begin, std::uint64_t end) {
  for (auto at = first_range_beyond(all.by_base, begin, kEndOfRange);
       at != all.by_base.end() && at->first < end; ++at) {
    if (at->second.is_sure()) return true;
  }
  return false;
}

// Removes [begin, end) from memory of graphs. Nothing else is in it. The mutex must be held.
void cut_graph_memory(Ranges& all, std::uint64_t begin, std::uint64_t end) {
  auto at = first_range_beyond(all.by_base, begin, kEndOfRange);
  while (at != all.by_base.end() && at->first < end) {
    const MemoryRange whole = at->second;
    at = all.by_base.erase(at);
    const auto keep = [&](std::uint64_t from, std::uint64_t to) {
      if (from >= to) return;
      MemoryRange part = whole;
      part.base = from;
      part.bytes = to - from;
      all.by_base.emplace(from, part);
    };
    keep(whole.base, std::min(begin, kEndOfRange(whole)));
    keep(std::max(end, whole.base), kEndOfRange(whole));
  }
}

template <typename Matches>
std::vector<MemoryRange> take_matching(Matches matches) {
  Ranges& all = ranges();
  const std::lock_guard<std::mutex> lock(all.mutex);
  std::vector<MemoryRange> taken;
  for (auto it = all.by_base.begin(); it != all.by_base.end();) {
    if (!matches(it->second)) {
      ++it;
      continue;
    }
    taken.push_back(it->second);
    count_used(it->second, false);
    it = all.by_base.erase(it);
  }
  ranges_changed();
  return taken;
}

template <typename Change>
void change_range(std::uint64_t base, Change change) noexcept {
  Ranges& all = ranges();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.by_base.find(base);
  if (found == all.by_base.end()) return;
  change(found->second);
  ranges_changed();
}

}  // namespace

bool add_range(MemoryRange range) noexcept try {
  if (range.bytes == 0 || range.base + range.bytes < range.base) return false;
  Ranges& all = ranges();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (is_in_use(all, range.base, kEndOfRange(range))) return false;
  cut_graph_memory(all, range.base, kEndOfRange(range));
  range.buffer_id = ++all.last_buffer_id;
  all.by_base.emplace(range.base, range);
  count_used(range, true);
  ranges_changed();
  if (!range.is_sure()) g_graph_memory.store(true, std::memory_order_relaxed);
  if (range.on_host() || range.in_arena) {
    host_memory_added(range);
  } else {
    block(all, range.base, range.bytes);
  }
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

std::optional<MemoryRange> find_range(std::uint64_t address) noexcept {
  if (const MemoryRange* const found = found_before(address); found != nullptr) return *found;
  Ranges& all = ranges();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return find_and_keep(all, address);
}

std::optional<MemoryRange> find_range(std::uint64_t address, bool* held) noexcept {
  *held = false;
  if (const MemoryRange* const found = found_before(address); found != nullptr) return *found;
  Ranges& all = ranges();
  const std::lock_guard<std::mutex> lock(all.mutex);
  auto range = find_and_keep(all, address);
  if (range.has_value()) return range;
  const auto next = all.held.upper_bound(address);
  *held = next != all.held.begin() && address < std::prev(next)->second;
  return std::nullopt;
}

std::optional<MemoryRange> remove_range(std::uint64_t base, MemoryKind kind) noexcept {
  Ranges& all = ranges();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.by_base.find(base);
  if (found == all.by_base.end() || found->second.kind != kind) return std::nullopt;
  const MemoryRange range = found->second;
  all.by_base.erase(found);
  count_used(range, false);
  ranges_changed();
  return range;
}

bool note_shared(std::uint64_t base) noexcept {
  Ranges& all = ranges();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.by_base.find(base);
  if (found == all.by_base.end() || std::exchange(found->second.shared, true)) return false;
  ranges_changed();
  return true;
}

void note_reached(std::uint64_t base) noexcept {
  change_range(base, [](MemoryRange& range) { range.reached = true; });
}

void note_view(std::uint64_t base, std::uint64_t view) noexcept {
  change_range(base, [view](MemoryRange& range) { range.view = view; });
}

bool host_memory_exists() noexcept { return g_host_end.load(std::memory_order_relaxed) != 0; }

bool graph_memory_exists() noexcept { return g_graph_memory.load(std::memory_order_relaxed); }

bool may_be_host_memory(std::uint64_t address) noexcept {
  return address >= g_host_start.load(std::memory_order_relaxed) &&
         address < g_host_end.load(std::memory_order_relaxed);
}

std::vector<MemoryRange> take_ranges_of_context(Handle context) {
  // Reserved addresses belong to the process (manual, cuMemAddressReserve).
  return take_matching([context](const MemoryRange& range) {
    return range.context == context && range.kind != MemoryKind::kReserved;
  });
}

void remove_ranges_of_owner(Handle owner) noexcept {
  take_matching([owner](const MemoryRange& range) { return range.owner == owner; });
}

bool hold_addresses(std::uint64_t base, std::uint64_t bytes) noexcept try {
  if (base + bytes < base) return false;
  Ranges& all = ranges();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto next = all.blocked.lower_bound(base);
  if (next != all.blocked.end() && next->first < base + bytes) return false;
  if (next != all.blocked.begin() && std::prev(next)->second > base) return false;
  if (!map_nothing(base, base + bytes)) return false;
  all.blocked[base] = base + bytes;
  all.held[base] = base + bytes;
  all.kept_for_windows[base] = base + bytes;
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

bool open_addresses(std::uint64_t base, std::uint64_t bytes) noexcept try {
  const std::uint64_t end = base + bytes;
  if (end <= base) return false;
  Ranges& all = ranges();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto window = first_range_beyond(all.kept_for_windows, base, kEndOf);
  if (reaches_window(base, bytes) ||
      (window != all.kept_for_windows.end() && window->first < end)) {
    return false;
  }
  for (auto at = first_range_beyond(all.by_base, base, kEndOfRange);
       at != all.by_base.end() && at->first < end; ++at) {
    const MemoryKind kind = at->second.kind;
    const bool sure = at->second.is_sure();
    if (sure && kind != MemoryKind::kManaged && kind != MemoryKind::kModule) return false;
  }
  const std::vector<AddressPart> free = parts_outside(all.held, base, end, kEndOf);
  bool mapped = true;
  for (std::size_t i = 0; mapped && i < free.size(); ++i) {
    mapped = map_nothing(free[i].begin, free[i].end);
    if (mapped) all.held[free[i].begin] = free[i].end;
  }
  for (const AddressPart& part : parts_outside(all.blocked, base, end, kEndOf)) {
    all.blocked[part.begin] = part.end;
  }
  // What could be mapped stays blocked.
  if (!mapped || !map_over(base, end, PROT_READ | PROT_WRITE)) return false;
  cut(all.held, base, end);
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

void close_addresses(std::uint64_t base, std::uint64_t bytes) noexcept try {
  Ranges& all = ranges();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (map_over(base, base + bytes, PROT_NONE)) all.held[base] = base + bytes;
} catch (const std::bad_alloc&) {
}

void let_go_of_addresses(std::uint64_t base, std::uint64_t bytes) noexcept {
  Ranges& all = ranges();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (all.blocked.erase(base) == 0) return;
  all.held.erase(base);
  all.kept_for_windows.erase(base);
  munmap(reinterpret_cast<void*>(base), bytes);
}

void add_device_window(int server_ordinal, std::uint64_t base, std::uint64_t bytes) noexcept {
  g_window_ends[server_ordinal].store(base + bytes, std::memory_order_relaxed);
  g_window_bases[server_ordinal].store(base, std::memory_order_release);
  int places = g_window_places.load(std::memory_order_relaxed);
  while (places <= server_ordinal && !g_window_places.compare_exchange_weak(
                                         places, server_ordinal + 1, std::memory_order_acq_rel)) {
  }
}

bool has_device_window(int server_ordinal) noexcept {
  return g_window_bases[server_ordinal].load(std::memory_order_acquire) != 0;
}

int device_of_window(std::uint64_t address) noexcept {
  const int places = g_window_places.load(std::memory_order_acquire);
  for (int device = 0; device < places; ++device) {
    const std::uint64_t base = g_window_bases[device].load(std::memory_order_acquire);
    if (base == 0 || address < base) continue;
    if (address < g_window_ends[device].load(std::memory_order_relaxed)) return device;
  }
  return -1;
}

bool reaches_window(std::uint64_t address, std::uint64_t bytes) noexcept {
  const int places = g_window_places.load(std::memory_order_acquire);
  for (int device = 0; device < places; ++device) {
    const std::uint64_t base = g_window_bases[device].load(std::memory_order_acquire);
    if (base == 0 || address + bytes <= base) continue;
    if (address < g_window_ends[device].load(std::memory_order_relaxed)) return true;
  }
  return false;
}

}  // namespace gpurun::client::interpose
