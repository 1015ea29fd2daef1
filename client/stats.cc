// Counters by function, added to without locks.
#include "client/stats.h"

#include <algorithm>

namespace gpurun::client {

Stats::Stats(bool enabled) {
  if (enabled) rows_ = std::make_unique<Counters[]>(kOpcodes);
}

void Stats::count_entry(std::uint16_t opcode) noexcept {
  if (enabled()) of(opcode).entries.fetch_add(1, std::memory_order_relaxed);
}

void Stats::count(std::uint16_t opcode, std::uint64_t bytes) noexcept {
  if (!enabled()) return;
  of(opcode).calls.fetch_add(1, std::memory_order_relaxed);
  of(opcode).bytes.fetch_add(bytes, std::memory_order_relaxed);
}

void Stats::count_bytes(std::uint16_t opcode, std::uint64_t bytes) noexcept {
  if (enabled()) of(opcode).bytes.fetch_add(bytes, std::memory_order_relaxed);
}

void Stats::count_fence(std::uint16_t opcode, std::chrono::nanoseconds waited) noexcept {
  if (!enabled()) return;
  of(opcode).fences.fetch_add(1, std::memory_order_relaxed);
  of(opcode).waited_ns.fetch_add(static_cast<std::uint64_t>(waited.count()),
                                 std::memory_order_relaxed);
}

void Stats::count_wait(std::uint16_t opcode, std::chrono::nanoseconds waited) noexcept {
  if (!enabled()) return;
  of(opcode).waits.fetch_add(1, std::memory_order_relaxed);
  of(opcode).waited_ns.fetch_add(static_cast<std::uint64_t>(waited.count()),
                                 std::memory_order_relaxed);
}

std::vector<Stats::Row> Stats::rows() const {
  std::vector<Row> result;
  for (std::size_t opcode = 0; enabled() && opcode < kOpcodes; ++opcode) {
    const Counters& from = rows_[opcode];
    Row row;
    row.opcode = static_cast<std::uint16_t>(opcode);
    row.entries = from.entries.load(std::memory_order_relaxed);
    row.calls = from.calls.load(std::memory_order_relaxed);
    row.fences = from.fences.load(std::memory_order_relaxed);
    row.waits = from.waits.load(std::memory_order_relaxed);
    row.bytes = from.bytes.load(std::memory_order_relaxed);
    row.waited = std::chrono::nanoseconds(
        static_cast<std::int64_t>(from.waited_ns.load(std::memory_order_relaxed)));
    if (row.calls != 0 || row.entries != 0) result.push_back(row);
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const Row& left, const Row& right) { return left.waited > right.waited; });
  return result;
}

}  // namespace gpurun::client
