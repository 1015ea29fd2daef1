// Graph memory: device memory that nodes of graphs allocate, by cuGraphAddMemAllocNode or captured.
//
// An allocation keeps its address through all launches. Each launch allocates it, and a node,
// cuMemFreeAsync or cuMemFree frees it. CUDA Driver API manual, cuGraphAddMemAllocNode. The client
// sees neither the launches of a free node nor the end of the last executable. So it keeps the
// range until other memory gets the addresses, and asks the driver what is there now.
#pragma once

#include <cstdint>
#include <optional>

#include "client/interpose/call/forward.h"
#include "client/interpose/memory/memory_ranges.h"

namespace gpurun::client::interpose {

// The driver has given these addresses to a node on the program's device `ordinal`.
void keep_graph_memory(std::uint64_t address, std::uint64_t bytes, int ordinal) noexcept;
// Whether `address` is in memory that a node allocates, or has allocated.
bool is_graph_memory(std::uint64_t address) noexcept;
// Whether a call that names `range` may be posted. Calls that name memory of graphs wait for the
// driver's answer, unless a host function waits or runs. It may hold up the call, and need the
// calling thread. A failure is then returned later (docs/adr/0003).
inline bool may_be_posted(const EntryContext& here, const MemoryRange& range) noexcept {
  return range.is_sure() || here.session().host_functions_wait();
}
// As above, for the memory at `address`. False: the client knows none.
inline bool may_be_posted(const EntryContext& here, std::uint64_t address) noexcept {
  const std::optional<MemoryRange> range = find_range(address);
  return range.has_value() && may_be_posted(here, *range);
}
// Frees memory of a graph as cuMemFree does. Returns the driver's answer, because the program may
// have freed the memory since the last launch.
int free_graph_memory(const EntryContext& here, CUdeviceptr address);
// As find_range(), but memory of a graph is what the driver knows at `address`. `*range` is left
// alone when the driver cannot be asked. Returns 0, or an earlier call's failure, which the program
// has to get.
int ask_for_graph_memory(const EntryContext& here, std::uint64_t address,
                         std::optional<MemoryRange>* range);

}  // namespace gpurun::client::interpose
