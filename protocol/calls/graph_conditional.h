// Conditional nodes of graphs: the payload of form kRaw of cuGraphAddNode. Nodes of all other types
// travel as the call of their type. The value that kernels set has the driver's own handle, because
// it travels inside kernel parameters.
#pragma once

#include <cstdint>

namespace gpurun::protocol {

// This many node handles of 8 bytes follow, and then this many new handles of body graphs. The
// reply is empty.
struct GraphConditionalPayload {
  std::uint64_t graph = 0;
  std::uint64_t node = 0;              // The new handle.
  std::uint64_t conditional = 0;       // The driver's handle of the value.
  std::uint64_t context = 0;           // 0: none.
  std::uint32_t type = 0;              // CUgraphConditionalNodeType.
  std::uint32_t body_count = 0;        // 1 to limits::kArrayCountMax.
  std::uint32_t dependency_count = 0;  // At most limits::kArrayCountMax.
  std::uint32_t reserved = 0;
};
static_assert(sizeof(GraphConditionalPayload) == 48);

}  // namespace gpurun::protocol
