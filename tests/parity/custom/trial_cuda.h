// cuda.h with every version of every function, and the trials, which take their types from it.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#if CUDA_VERSION < 13020  // Names that trials use and an older cuda.h lacks.
extern "C" {
CUresult cuLaunchHostFunc_v2(CUstream, CUhostFn, void*, unsigned int);
CUresult cuMemcpyWithAttributesAsync(CUdeviceptr, CUdeviceptr, size_t, CUmemcpyAttributes*,
                                     CUstream);
}
#endif
#if CUDA_VERSION < 13040
extern "C" {
CUresult cuGraphAddNode_v3(CUgraphNode*, CUgraph, const CUgraphNode*, const CUgraphEdgeData*,
                           size_t, CUgraphNodeParams*);
CUresult cuGraphNodeSetParams_v2(CUgraphNode, CUgraphNodeParams*);
}
#endif

#include "tests/parity/custom/trial.h"
