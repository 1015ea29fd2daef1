// A driver for tests: the emulated device, which refuses to set host nodes when it is told to. What
// is not here, it has of the device that it is linked with.
#include <dlfcn.h>

#include <atomic>

#include "driver_abi/cuda_abi.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

std::atomic<int> g_refusals{0};  // So many calls are refused.

bool refuses() {
  int left = g_refusals.load();
  while (left > 0 && !g_refusals.compare_exchange_weak(left, left - 1)) {
  }
  return left > 0;
}

template <typename Function>
Function* next(const char* symbol, Function*) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, symbol));
}

}  // namespace

EXPORTED void gpurun_test_refuse_host_nodes(int count);
void gpurun_test_refuse_host_nodes(int count) { g_refusals = count; }

EXPORTED CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* given) {
  if (refuses()) return CUDA_ERROR_OUT_OF_MEMORY;
  return next(__func__, &cuGraphHostNodeSetParams)(node, given);
}

EXPORTED CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                               const CUDA_HOST_NODE_PARAMS* given) {
  if (refuses()) return CUDA_ERROR_OUT_OF_MEMORY;
  return next(__func__, &cuGraphExecHostNodeSetParams)(exec, node, given);
}
