// Ordered changes: changes of executables that later calls must not overtake, because the change
// uses a child graph that the call changes, or memory that it ends (docs/adr/0056).
#pragma once

#include <atomic>
#include <cstdint>

#include "driver_abi/row.h"

namespace gpurun::client::interpose {

// Whether a driver has accepted such a change in this process. Only exec_changes.cc sets it.
inline constinit std::atomic<bool> g_ordered_changes{false};

inline bool ordered_changes_exist() noexcept {
  return g_ordered_changes.load(std::memory_order_relaxed);
}

// The program calls `row`. If that may change the contents of a graph, waits until the worker has
// made the posted changes of child graphs, and counts the change. If it may end memory, waits for
// the posted changes that use memory. Returns an earlier call's failure, otherwise 0.
int settle_before(const driver_abi::Row& row);

// The number of changes of graphs that settle_before() has counted.
std::uint64_t graph_changes() noexcept;

// The number of calls that settle_before() has counted because they end memory, or change which
// devices reach it. After one a driver may judge memory anew.
std::uint64_t memory_ends() noexcept;

}  // namespace gpurun::client::interpose
