// Memory nodes of graphs: payloads of form kRaw of cuGraphAddMemAllocNode and
// cuGraphMemAllocNodeGetParams, and their replies.
//
// Ordinals of devices are the worker's. The structures are those of cuda.h. Their pointer
// (win32SecurityAttributes) is ignored here, and is null in replies.
#pragma once

#include <cstddef>
#include <cstdint>

#include "driver_abi/cuda_abi.h"

namespace gpurun::protocol {

// The most devices that may get access to one allocation. The manual allows as many as there are
// GPUs.
inline constexpr std::size_t kGraphMemoryAccessesMax = 64;

// cuGraphAddMemAllocNode. This many node handles of 8 bytes follow, and then this many
// CUmemAccessDesc. The reply is the allocation's address, of 8 bytes.
struct GraphMemoryPayload {
  std::uint64_t graph = 0;
  std::uint64_t node = 0;  // The new handle.
  CUmemPoolProps properties{};
  std::uint64_t bytes = 0;
  std::uint32_t dependency_count = 0;  // At most limits::kArrayCountMax.
  std::uint32_t access_count = 0;      // At most kGraphMemoryAccessesMax.
};
static_assert(sizeof(CUmemPoolProps) == 88 && sizeof(CUmemAccessDesc) == 12);
static_assert(sizeof(GraphMemoryPayload) == 120);

// cuGraphMemAllocNodeGetParams sends the node's handle, of 8 bytes. This is the reply. So many
// CUmemAccessDesc follow.
struct GraphMemoryReply {
  CUmemPoolProps properties{};
  std::uint64_t bytes = 0;
  std::uint64_t address = 0;
  std::uint32_t access_count = 0;  // At most kGraphMemoryAccessesMax.
  std::uint32_t reserved = 0;
};
static_assert(sizeof(GraphMemoryReply) == 112);

}  // namespace gpurun::protocol
