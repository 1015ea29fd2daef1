// Refusing driver: the emulated device, except that it refuses calls when a test asks for that. It
// takes all functions that are not here from the device that it is linked with.
//
// A test asks in the same process (gpurun_test_refuse_host_nodes), or from another process as
// tests/drivers/changed/refusals.h says.
#include "tests/drivers/changed/refusals.h"

#include <dlfcn.h>

#include <atomic>

#include "driver_abi/cuda_abi.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

std::atomic<int> g_refusals{0};  // The number of calls left to refuse.

bool refuses() {
  int left = g_refusals.load();
  while (left > 0 && !g_refusals.compare_exchange_weak(left, left - 1)) {
  }
  return left > 0;
}

struct Refusal {
  std::atomic<int> left{0};
  std::atomic<int> code{0};
};
Refusal g_by_function[gpurun::kRefusableCount];

// Returns 0, or the code with which to refuse this call.
int refusal(gpurun::Refusable function) {
  Refusal& of = g_by_function[function];
  int left = of.left.load();
  while (left > 0 && !of.left.compare_exchange_weak(left, left - 1)) {
  }
  return left > 0 ? of.code.load() : 0;
}

template <typename Function>
Function* next(const char* symbol, Function*) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, symbol));
}

}  // namespace

EXPORTED void gpurun_test_refuse_host_nodes(int count);
void gpurun_test_refuse_host_nodes(int count) { g_refusals = count; }

// As with NVIDIA's driver: the next node gets the value of a node that ended with its graph.
EXPORTED void gpurun_test_use_child_node_again();
namespace {
std::atomic<CUgraphNode> g_last_child{nullptr};
std::atomic<bool> g_again{false};
}  // namespace
void gpurun_test_use_child_node_again() { g_again = true; }

EXPORTED CUresult cuGraphAddChildGraphNode(CUgraphNode* node, CUgraph graph,
                                           const CUgraphNode* dependencies, size_t count,
                                           CUgraph child) {
  if (g_again.exchange(false)) {
    *node = g_last_child;
    return CUDA_SUCCESS;
  }
  const CUresult result =
      next(__func__, &cuGraphAddChildGraphNode)(node, graph, dependencies, count, child);
  g_last_child = *node;
  return result;
}
EXPORTED CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
  if (node != g_last_child) return next(__func__, &cuGraphNodeGetType)(node, type);
  *type = CU_GRAPH_NODE_TYPE_GRAPH;
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* given) {
  if (refuses()) return CUDA_ERROR_OUT_OF_MEMORY;
  return next(__func__, &cuGraphHostNodeSetParams)(node, given);
}

EXPORTED CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                               const CUDA_HOST_NODE_PARAMS* given) {
  if (refuses()) return CUDA_ERROR_OUT_OF_MEMORY;
  return next(__func__, &cuGraphExecHostNodeSetParams)(exec, node, given);
}

// Also runs the device's own memset, because the memory belongs to the program.
EXPORTED CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  if ((value & gpurun::kRefusalMask) == gpurun::kRefusalMark) {
    const unsigned function = value >> gpurun::kRefusalFunctionShift & 0xff;
    if (function < gpurun::kRefusableCount) {
      g_by_function[function].code = static_cast<int>(value & 0xffff);
      g_by_function[function].left = static_cast<int>(count);
    }
  }
  return next(__func__, &cuMemsetD32Async)(to, value, count, stream);
}

#define REFUSABLE(number, name, parameters, arguments)                                      \
  EXPORTED CUresult name parameters {                                                       \
    if (const int refused = refusal(gpurun::number)) return static_cast<CUresult>(refused); \
    return next(__func__, &name) arguments;                                                 \
  }

REFUSABLE(kRefuseStreamCreate, cuStreamCreate, (CUstream * out, unsigned flags), (out, flags))
REFUSABLE(kRefuseEventCreate, cuEventCreate, (CUevent * out, unsigned flags), (out, flags))
REFUSABLE(kRefuseModuleLoadDataEx, cuModuleLoadDataEx,
          (CUmodule * out, const void* image, unsigned count, CUjit_option* options, void** values),
          (out, image, count, options, values))
REFUSABLE(kRefuseModuleGetFunction, cuModuleGetFunction,
          (CUfunction * out, CUmodule module, const char* name), (out, module, name))
REFUSABLE(kRefuseLibraryLoadData, cuLibraryLoadData,
          (CUlibrary * out, const void* code, CUjit_option* jit, void** jit_values, unsigned jits,
           CUlibraryOption* options, void** values, unsigned count),
          (out, code, jit, jit_values, jits, options, values, count))
REFUSABLE(kRefuseGraphCreate, cuGraphCreate, (CUgraph * out, unsigned flags), (out, flags))
REFUSABLE(kRefuseGraphClone, cuGraphClone, (CUgraph * out, CUgraph of), (out, of))
REFUSABLE(kRefuseGraphAddEmptyNode, cuGraphAddEmptyNode,
          (CUgraphNode * out, CUgraph graph, const CUgraphNode* behind, size_t count),
          (out, graph, behind, count))
REFUSABLE(kRefuseMemsetD8Async, cuMemsetD8Async,
          (CUdeviceptr to, unsigned char value, size_t count, CUstream stream),
          (to, value, count, stream))
