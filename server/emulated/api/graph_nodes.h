// Between CUDA's node parameters and operations: for graphs, executables and captures alike.
#pragma once

#include <vector>

#include "server/emulated/api/entry.h"
#include "server/emulated/objects/graph.h"

namespace gpurun::emulated {

inline constexpr std::size_t kGraphNodesMax = 1 << 20;  // Of one list; INVALID_VALUE beyond.

// The nodes of a list, all of `graph`. INVALID_VALUE.
CUresult find_nodes(const Graph& graph, const CUgraphNode* list, std::size_t count,
                    std::vector<GraphNodePtr>* nodes);
// Only full dependencies exist here: programmatic ones are NOT_SUPPORTED.
CUresult check_edges(const CUgraphEdgeData* edges, std::size_t count);

// The operation that parameters describe. `context` nullptr: the current one.
CUresult make_kernel(const CUDA_KERNEL_NODE_PARAMS& parameters, OperationPtr* operation);
CUresult make_copy(const CUDA_MEMCPY3D* parameters, OperationPtr* operation);
CUresult make_fill(const CUDA_MEMSET_NODE_PARAMS* parameters, OperationPtr* operation);
CUresult make_host(const CUDA_HOST_NODE_PARAMS* parameters, OperationPtr* operation);
CUresult make_event(CUevent handle, bool record, OperationPtr* operation);
CUresult make_child(CUgraph handle, OperationPtr* operation);
// Memory that `graph` keeps, and its place in it. OUT_OF_MEMORY.
CUresult make_allocation(Graph& graph, Device& device, std::uint64_t bytes, CUdeviceptr* address,
                         OperationPtr* operation);
CUresult make_free(CUdeviceptr address, OperationPtr* operation);
CUresult make_operation(const CUgraphNodeParams& parameters, OperationPtr* operation);

}  // namespace gpurun::emulated
