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
// Whether `address` is in memory that a node allocates or has allocated.
bool is_graph_memory(std::uint64_t address) noexcept;
// Frees memory of a graph as cuMemFree does. Returns the driver's answer, because the program may
// have freed the memory since the last launch.
int free_graph_memory(const EntryContext& here, CUdeviceptr address);
// As find_range(), but memory of a graph is what the driver knows at `address`. `*range` is left
// alone when the driver cannot be asked.
void ask_for_graph_memory(const EntryContext& here, std::uint64_t address,
                          std::optional<MemoryRange>* range);

}  // namespace gpurun::client::interpose
