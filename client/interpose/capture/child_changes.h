// Child changes: changes of child graphs in executables, which a later change of the child graph
// itself must not overtake (docs/adr/0056).
#pragma once

#include <atomic>
#include <cstdint>

#include "driver_abi/row.h"

namespace gpurun::client::interpose {

// Whether a driver has accepted such a change in this process. Only exec_changes.cc sets it.
inline constinit std::atomic<bool> g_child_changes{false};

inline bool child_changes_exist() noexcept {
  return g_child_changes.load(std::memory_order_relaxed);
}

// The program calls `row`. If that may change the contents of a graph, waits until the worker has
// made the posted changes of child graphs, and counts the change. Returns an earlier call's
// failure, otherwise 0.
int note_graph_change(const driver_abi::Row& row);

// The number of changes of graphs that note_graph_change() has counted.
std::uint64_t graph_changes() noexcept;

}  // namespace gpurun::client::interpose
