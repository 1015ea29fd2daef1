// Graph dot: the text and the file that cuGraphDebugDotPrint writes. NVIDIA's manual does not fix
// the text. It has the nodes with their types and numbers, the names of kernels, and the edges.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "driver_abi/cuda_abi.h"

namespace gpurun::driver_abi {

struct DotNode {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  std::string kernel;  // The name, for a kernel node.
};
// Indexes of nodes.
struct DotEdge {
  std::size_t from = 0;
  std::size_t to = 0;
};

std::string dot_of(std::span<const DotNode> nodes, std::span<const DotEdge> edges);

// Replaces the file. Returns 0, or CUDA_ERROR_OPERATING_SYSTEM.
int write_dot(const char* path, const std::string& text);

}  // namespace gpurun::driver_abi
