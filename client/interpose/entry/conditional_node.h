// Conditional node: a node that runs graphs of its own by a value that kernels set (cuda.h,
// CUDA_CONDITIONAL_NODE_PARAMS).
#pragma once

#include <cstddef>
#include <vector>

#include "client/log/handles.h"
#include "driver_abi/cuda_abi.h"

namespace gpurun::client::interpose {

// As cuGraphAddNode. Waits for the worker's driver, which alone knows the value. Writes the list of
// bodies into `parameters`. Returns a CUresult.
int add_conditional_node(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                         std::size_t count, CUDA_CONDITIONAL_NODE_PARAMS* parameters);

// "CUDA-owned array ... Valid for the lifetime of the conditional node" (cuda.h). The list of the
// bodies of `node` that the program may read.
CUgraph* bodies_of_node(const HandleTable& handles, Handle node, std::vector<CUgraph> bodies);

}  // namespace gpurun::client::interpose
