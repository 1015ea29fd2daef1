// Graph nodes: conversion between CUDA's node parameters and operations, for graphs, executables
// and captures.
#pragma once

#include <vector>

#include "emulated/api/entry.h"
#include "emulated/objects/graph.h"

namespace gpurun::emulated {

inline constexpr std::size_t kGraphNodesMax = 1 << 20;  // Of one list. INVALID_VALUE beyond.

// The nodes of a list. INVALID_VALUE unless all of them belong to `graph`.
CUresult find_nodes(const Graph& graph, const CUgraphNode* list, std::size_t count,
                    std::vector<GraphNodePtr>* nodes);
// Only full dependencies are supported. NOT_SUPPORTED for programmatic ones.
CUresult check_edges(const CUgraphEdgeData* edges, std::size_t count);

// The operation that parameters describe. `context` null: the current one.
CUresult make_kernel(const CUDA_KERNEL_NODE_PARAMS& parameters, OperationPtr* operation);
CUresult make_copy(const CUDA_MEMCPY3D* parameters, OperationPtr* operation);
CUresult make_fill(const CUDA_MEMSET_NODE_PARAMS* parameters, OperationPtr* operation);
CUresult make_host(const CUDA_HOST_NODE_PARAMS* parameters, OperationPtr* operation);
CUresult make_event(CUevent handle, bool record, OperationPtr* operation);
CUresult make_child(CUgraph handle, OperationPtr* operation);
// Allocates memory that `graph` keeps, and makes its node's operation. OUT_OF_MEMORY.
CUresult make_allocation(Graph& graph, Device& device, std::uint64_t bytes, CUdeviceptr* address,
                         OperationPtr* operation, std::vector<CUmemAccessDesc> accesses = {});
CUresult make_free(CUdeviceptr address, OperationPtr* operation);
// NOT_SUPPORTED if the graph has nodes that allocate or free memory. It cannot be cloned, cannot be
// a child, and keeps its nodes (manual, cuGraphAddMemAllocNode, which names no code for that).
CUresult check_without_memory(const Graph& graph);
CUresult make_operation(const CUgraphNodeParams& parameters, OperationPtr* operation);

}  // namespace gpurun::emulated
