// Parameters of graph nodes of types that have no call of their own: payloads of form kRaw, and
// replies. Handles are the client's.
#pragma once

#include <cstdint>

#include "driver_abi/cuda_abi.h"

namespace gpurun::protocol {

// cuGraphNodeGetParams sends the node's handle, of 8 bytes. This is the reply: what the function of
// the node's type does not return. This many handles of body graphs, of 8 bytes, follow.
struct GraphNodeFacts {
  std::uint32_t type = 0;              // CUgraphNodeType.
  std::uint32_t conditional_type = 0;  // CUgraphConditionalNodeType.
  std::uint64_t context = 0;           // 0: none that the client knows.
  std::uint64_t conditional = 0;       // The driver's handle of the value.
  std::uint32_t body_count = 0;        // At most limits::kArrayCountMax.
  std::uint32_t reserved = 0;
};
static_assert(sizeof(GraphNodeFacts) == 32);

// Memory operations as a node: cuGraphAddBatchMemOpNode, cuGraphBatchMemOpNodeSetParams and
// cuGraphExecBatchMemOpNodeSetParams. This many node handles of 8 bytes follow, and then this many
// CUstreamBatchMemOpParams. The reply is empty.
struct GraphBatchPayload {
  std::uint64_t graph = 0;    // Of an executable: the executable. 0: of a node alone.
  std::uint64_t node = 0;     // When it is added: the new handle.
  std::uint64_t context = 0;  // 0: none.
  std::uint32_t flags = 0;
  std::uint32_t operation_count = 0;   // At most driver_abi::kStreamMemoryOperationsMax.
  std::uint32_t dependency_count = 0;  // At most limits::kArrayCountMax.
  std::uint32_t reserved = 0;
};
static_assert(sizeof(GraphBatchPayload) == 40);
static_assert(sizeof(CUstreamBatchMemOpParams) == 48);

// cuGraphBatchMemOpNodeGetParams sends the node's handle, of 8 bytes. This is the reply. This many
// CUstreamBatchMemOpParams follow.
struct GraphBatchReply {
  std::uint64_t context = 0;
  std::uint32_t flags = 0;
  std::uint32_t operation_count = 0;  // At most driver_abi::kStreamMemoryOperationsMax.
};
static_assert(sizeof(GraphBatchReply) == 16);

// A child graph that moves into its node (CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE), under the opcode of
// cuGraphAddNode_v2. This many node handles of 8 bytes follow, and then this many CUgraphEdgeData.
// The reply is empty.
struct GraphMovePayload {
  std::uint64_t graph = 0;
  std::uint64_t node = 0;              // The new handle.
  std::uint64_t child = 0;             // Ends with the node from now on.
  std::uint32_t dependency_count = 0;  // At most limits::kArrayCountMax.
  std::uint32_t reserved = 0;
};
static_assert(sizeof(GraphMovePayload) == 32);
static_assert(sizeof(CUgraphEdgeData) == 8);

}  // namespace gpurun::protocol
