// Conditional node: a node that runs graphs of its own by a value that kernels set (cuda.h,
// CUDA_CONDITIONAL_NODE_PARAMS).
#pragma once

#include <cstddef>

#include "driver_abi/cuda_abi.h"

namespace gpurun::client::interpose {

// As cuGraphAddNode. Waits for the worker's driver, which alone knows the value. Writes the list of
// bodies into `parameters`. Returns a CUresult.
int add_conditional_node(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                         std::size_t count, CUDA_CONDITIONAL_NODE_PARAMS* parameters);

}  // namespace gpurun::client::interpose
