// Conversion of node parameters to operations and back.
#include "emulated/api/graph_nodes.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "driver_abi/semantics/object_flags.h"
#include "driver_abi/semantics/planes.h"
#include "emulated/api.h"
#include "emulated/api/copies.h"
#include "emulated/api/launch_kernel.h"
#include "emulated/objects/graph_exec.h"
#include "emulated/objects/host_operation.h"
#include "emulated/objects/memory_operations.h"

namespace gpurun::emulated {

CUresult find_nodes(const Graph& graph, const CUgraphNode* list, std::size_t count,
                    std::vector<GraphNodePtr>* nodes) {
  if (count > kGraphNodesMax || (count != 0 && list == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    auto node = handles().find<GraphNode>(list[i]);
    if (node == nullptr || node->graph().get() != &graph) return CUDA_ERROR_INVALID_VALUE;
    nodes->push_back(std::move(node));
  }
  return CUDA_SUCCESS;
}

CUresult check_full_edges(const CUgraphEdgeData* edges, std::size_t count) {
  if (edges == nullptr) return CUDA_SUCCESS;
  if (count > kGraphNodesMax) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    if (edges[i].type != 0 || edges[i].from_port != 0 || edges[i].to_port != 0) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
  }
  return CUDA_SUCCESS;
}

bool fits_edge(const Operation& from, const Operation& to, const CUgraphEdgeData& data) {
  const auto is_zero = [](unsigned char byte) { return byte == 0; };
  if (data.to_port != 0 ||
      !std::all_of(std::begin(data.reserved), std::end(data.reserved), is_zero)) {
    return false;
  }
  const bool behind_kernel = from.graph_node_type() == CU_GRAPH_NODE_TYPE_KERNEL;
  const bool has_port = data.from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC ||
                        data.from_port == CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER;
  if (data.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC) {
    return behind_kernel && to.graph_node_type() == CU_GRAPH_NODE_TYPE_KERNEL && has_port;
  }
  return data.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT &&
         (data.from_port == CU_GRAPH_KERNEL_NODE_PORT_DEFAULT ||
          (behind_kernel && data.from_port == CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER));
}

CUDA_KERNEL_NODE_PARAMS newer(const CUDA_KERNEL_NODE_PARAMS_v1& parameters) {
  CUDA_KERNEL_NODE_PARAMS made{};
  static_assert(sizeof parameters == offsetof(CUDA_KERNEL_NODE_PARAMS, kern));
  std::memcpy(&made, &parameters, sizeof parameters);
  return made;
}

std::uint64_t context_of_node(CUcontext given) {
  if (given != nullptr) return reinterpret_cast<std::uintptr_t>(given);
  const auto current = [](ContextPtr* context) -> CUresult {
    GPURUN_ENTER(entered);
    *context = entered;
    return CUDA_SUCCESS;
  };
  ContextPtr context;
  return current(&context) == CUDA_SUCCESS ? context->handle() : 0;
}

CUresult make_kernel(const CUDA_KERNEL_NODE_PARAMS& parameters, OperationPtr* operation) {
  GPURUN_ENTER(current);
  LaunchCall call;
  ContextPtr context = current;
  call.function = parameters.func;
  if (parameters.func == nullptr) {
    call.function = reinterpret_cast<CUfunction>(parameters.kern);
    if (parameters.ctx != nullptr) context = handles().find<Context>(parameters.ctx);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  } else if (const auto function = handles().find<Function>(parameters.func)) {
    const auto module = function->module();
    if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    context = module->context();
  }
  call.grid[0] = parameters.gridDimX;
  call.grid[1] = parameters.gridDimY;
  call.grid[2] = parameters.gridDimZ;
  call.block[0] = parameters.blockDimX;
  call.block[1] = parameters.blockDimY;
  call.block[2] = parameters.blockDimZ;
  call.dynamic_shared_bytes = parameters.sharedMemBytes;
  call.parameters = parameters.kernelParams;
  call.extra = parameters.extra;
  KernelLaunch launch;
  LaunchEvents events;
  GPURUN_TRY(prepare_launch(context, call, &launch, &events));
  *operation = std::make_shared<LaunchOperation>(std::move(launch));
  return CUDA_SUCCESS;
}

CUresult make_copy(const CUDA_MEMCPY3D* parameters, OperationPtr* operation) {
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CopyBox box;
  GPURUN_TRY(make_copy_box(*parameters, &box));
  *operation =
      std::make_shared<CopyOperation>(box, std::make_shared<const CUDA_MEMCPY3D>(*parameters));
  return CUDA_SUCCESS;
}

CUresult make_fill(const CUDA_MEMSET_NODE_PARAMS* parameters, OperationPtr* operation) {
  const auto fill = parameters == nullptr ? std::nullopt : driver_abi::fill_of(*parameters);
  if (!fill) return CUDA_ERROR_INVALID_VALUE;
  Fill what;
  what.address = fill->address;
  what.row_pitch = fill->pitch;
  what.width = fill->width;
  what.height = fill->height;
  what.element_bytes = static_cast<std::uint32_t>(fill->element_bytes);
  what.value = parameters->value;
  GPURUN_TRY(check_fill(what));
  *operation = std::make_shared<FillOperation>(what);
  return CUDA_SUCCESS;
}

CUresult make_host(const CUDA_HOST_NODE_PARAMS* parameters, OperationPtr* operation) {
  if (parameters == nullptr || parameters->fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *operation = std::make_shared<HostOperation>(parameters->fn, parameters->userData);
  return CUDA_SUCCESS;
}

CUresult make_event(CUevent handle, bool record, OperationPtr* operation) {
  auto event = handles().find<Event>(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *operation = std::make_shared<GraphEventOperation>(std::move(event), record);
  return CUDA_SUCCESS;
}

CUresult make_child(CUgraph handle, OperationPtr* operation) {
  const auto graph = handles().find<Graph>(handle);
  if (graph == nullptr || graph->moved()) return CUDA_ERROR_INVALID_VALUE;
  GPURUN_TRY(check_cloneable(*graph));
  *operation = std::make_shared<ChildGraphOperation>(handles().add(graph->clone()));
  return CUDA_SUCCESS;
}

namespace {

bool has_conditional_node(const Graph& graph) {
  const auto nodes = graph.nodes();
  return std::any_of(nodes.begin(), nodes.end(), [](const GraphNodePtr& node) {
    return node->operation()->graph_node_type() == CU_GRAPH_NODE_TYPE_CONDITIONAL;
  });
}

// The node has the program's own graph, with its handle. That may allocate memory, but must not
// contain conditional nodes (cuda.h, CUDA_CHILD_GRAPH_NODE_PARAMS).
CUresult move_child(const Graph* parent, CUgraph handle, OperationPtr* operation) {
  const auto graph = handles().find<Graph>(handle);
  if (graph == nullptr || parent == nullptr || graph->contains(*parent)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (has_conditional_node(*graph)) return CUDA_ERROR_NOT_SUPPORTED;
  if (!graph->give_to_node()) return CUDA_ERROR_INVALID_VALUE;
  graph->set_moved();
  *operation = std::make_shared<ChildGraphOperation>(graph);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult make_child(const Graph* parent, const CUDA_CHILD_GRAPH_NODE_PARAMS& parameters,
                    OperationPtr* operation) {
  switch (parameters.ownership) {
    case CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE:
      return make_child(parameters.graph, operation);
    case CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE:
      return move_child(parent, parameters.graph, operation);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult make_memory_operations(const CUDA_BATCH_MEM_OP_NODE_PARAMS& parameters,
                                OperationPtr* operation) {
  if (parameters.ctx != nullptr && handles().find<Context>(parameters.ctx) == nullptr) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  if (parameters.flags != 0 || parameters.count > driver_abi::kStreamMemoryOperationsMax ||
      (parameters.count != 0 && parameters.paramArray == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<CUstreamBatchMemOpParams> list(parameters.paramArray,
                                             parameters.paramArray + parameters.count);
  for (const CUstreamBatchMemOpParams& each : list) GPURUN_TRY(check_memory_operation(each));
  *operation = std::make_shared<MemoryOperations>(std::move(list));
  return CUDA_SUCCESS;
}

CUresult make_operation(Graph* graph, CUgraphNodeParams* parameters, OperationPtr* operation) {
  switch (parameters->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      // The same fields under another name.
      CUDA_KERNEL_NODE_PARAMS kernel{};
      static_assert(sizeof kernel == sizeof parameters->kernel);
      std::memcpy(&kernel, &parameters->kernel, sizeof kernel);
      return make_kernel(kernel, operation);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return make_copy(&parameters->memcpy.copyParams, operation);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      CUDA_MEMSET_NODE_PARAMS fill{};
      static_assert(sizeof fill == offsetof(CUDA_MEMSET_NODE_PARAMS_v2, ctx));
      std::memcpy(&fill, &parameters->memset, sizeof fill);
      return make_fill(&fill, operation);
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
      const CUDA_HOST_NODE_PARAMS host = {parameters->host.fn, parameters->host.userData};
      return make_host(&host, operation);
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return make_child(graph, parameters->graph, operation);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      *operation = std::make_shared<EmptyOperation>();
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return make_event(parameters->eventWait.event, false, operation);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return make_event(parameters->eventRecord.event, true, operation);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
      // cuda.h, cuGraphNodeSetParams: modifying memory nodes is not supported.
      if (graph == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
      CUDA_MEM_ALLOC_NODE_PARAMS allocation{};
      static_assert(sizeof allocation == sizeof parameters->alloc);
      std::memcpy(&allocation, &parameters->alloc, sizeof allocation);
      const CUresult result = make_allocation(*graph, &allocation, operation);
      parameters->alloc.dptr = allocation.dptr;
      return result;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      if (graph == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
      if (graph->moved()) return CUDA_ERROR_INVALID_VALUE;
      return make_free(parameters->free.dptr, operation);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return make_memory_operations({parameters->memOp.ctx, parameters->memOp.count,
                                     parameters->memOp.paramArray, parameters->memOp.flags},
                                    operation);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return CUDA_ERROR_NOT_SUPPORTED;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      if (graph == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
      return make_conditional(&parameters->conditional, operation);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace gpurun::emulated
