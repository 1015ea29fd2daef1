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
// For captures: NOT_SUPPORTED unless all dependencies are full ones.
CUresult check_full_edges(const CUgraphEdgeData* edges, std::size_t count);
// Whether an edge between the nodes may have this data (cuda.h, CUgraphEdgeData). Here it makes no
// difference: every edge is a full dependency.
bool fits_edge(const Operation& from, const Operation& to, const CUgraphEdgeData& data);

// Adds `operation` after the nodes of the list.
CUresult add_graph_node(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                        std::size_t count, OperationPtr operation, CUcontext context = nullptr);
// Gives the node another operation of the same type, in its graph or in an executable.
CUresult replace_operation(CUgraphNode node, OperationPtr operation);
CUresult replace_operation(CUgraphExec exec, CUgraphNode node, OperationPtr operation);
// The context of a node for which the program gave `given`. NULL is the current one. 0: none.
std::uint64_t context_of_node(CUcontext given);

// The operation that parameters describe. `context` null: the current one.
CUDA_KERNEL_NODE_PARAMS newer(const CUDA_KERNEL_NODE_PARAMS_v1& parameters);
CUresult make_kernel(const CUDA_KERNEL_NODE_PARAMS& parameters, OperationPtr* operation);
CUresult make_copy(const CUDA_MEMCPY3D* parameters, OperationPtr* operation);
CUresult make_fill(const CUDA_MEMSET_NODE_PARAMS* parameters, OperationPtr* operation);
CUresult make_host(const CUDA_HOST_NODE_PARAMS* parameters, OperationPtr* operation);
CUresult make_event(CUevent handle, bool record, OperationPtr* operation);
CUresult make_child(CUgraph handle, OperationPtr* operation);
// `parent`: the graph of the new node. nullptr: the node exists already.
CUresult make_child(const Graph* parent, const CUDA_CHILD_GRAPH_NODE_PARAMS& parameters,
                    OperationPtr* operation);
CUresult make_memory_operations(const CUDA_BATCH_MEM_OP_NODE_PARAMS& parameters,
                                OperationPtr* operation);
// Allocates memory that `graph` keeps, and makes its node's operation. OUT_OF_MEMORY.
CUresult make_allocation(Graph& graph, Device& device, std::uint64_t bytes, CUdeviceptr* address,
                         OperationPtr* operation, std::vector<CUmemAccessDesc> accesses = {});
CUresult make_free(CUdeviceptr address, OperationPtr* operation);
// NOT_SUPPORTED if the graph has nodes that allocate or free memory. It cannot be cloned, cannot be
// a child, and keeps its nodes (manual, cuGraphAddMemAllocNode, which names no code for that).
CUresult check_without_memory(const Graph& graph);
CUresult make_conditional(CUDA_CONDITIONAL_NODE_PARAMS* parameters, OperationPtr* operation);
// NOT_SUPPORTED if the graph has memory nodes or conditional nodes (manual, cuGraphClone; cuda.h,
// CUDA_CHILD_GRAPH_NODE_PARAMS).
CUresult check_cloneable(const Graph& graph);
// Of a node of `graph`. nullptr: the node exists already, and gets new parameters.
CUresult make_operation(Graph* graph, CUgraphNodeParams* parameters, OperationPtr* operation);
// As cuGraphAddMemAllocNode takes them. Writes the address there.
CUresult make_allocation(Graph& graph, CUDA_MEM_ALLOC_NODE_PARAMS* parameters,
                         OperationPtr* operation);

}  // namespace gpurun::emulated
