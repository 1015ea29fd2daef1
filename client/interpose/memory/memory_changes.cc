// Memory changes: allocations by their numbers, which no other allocation gets.
#include "client/interpose/memory/memory_changes.h"

#include "client/interpose/capture/ordered_changes.h"
#include "client/interpose/memory/memory_ranges.h"

namespace gpurun::client::interpose {

ExecChange memory_change_of(const HandleTable& handles, Handle node,
                            std::initializer_list<std::uint64_t> what,
                            std::initializer_list<std::uint64_t> addresses) {
  ExecChange change = change_of(handles, node);
  change.push_back(memory_ends());
  change.insert(change.end(), what.begin(), what.end());
  for (const std::uint64_t address : addresses) {
    const auto range = find_range(address);
    if (!range.has_value() ||
        (range->kind != MemoryKind::kDevice && range->kind != MemoryKind::kPool)) {
      return {};
    }
    change.push_back(range->buffer_id);
  }
  return change;
}

}  // namespace gpurun::client::interpose
