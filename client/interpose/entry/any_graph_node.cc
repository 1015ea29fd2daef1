// Any graph node: the calls that take CUgraphNodeParams (CUDA Driver API manual, "Graph
// Management"). Each becomes the call of the node's own type, so that a node has one path, one set
// of checks and one record. Only conditional nodes and graphs that move into a node have no such
// call (conditional_node.h, moved_graph.h).
//
// No call of a type takes edge data. A node with such dependencies is added without any, and then
// gets them as cuGraphAddDependencies_v2 gives them.
#include <algorithm>
#include <cstring>
#include <vector>

#include "client/interpose/call/forward.h"
#include "client/interpose/call/refusals.h"
#include "client/interpose/custom.h"
#include "client/interpose/entry/conditional_node.h"
#include "client/interpose/entry/moved_graph.h"
#include "client/interpose/entry/run_row.h"

namespace gpurun::client::interpose {
namespace {

using driver_abi::find_row;

// cuda.h, cuGraphNodeSetParams: "Modifying parameters is not supported for node types
// CU_GRAPH_NODE_TYPE_MEM_ALLOC and CU_GRAPH_NODE_TYPE_MEM_FREE".
constexpr char kFixedType[] = "no function sets the parameters of a node of this type";

// The row of the type's own function, which says why it is refused.
CUresult refuse(std::uint16_t code) { return call_refused(*find_row(code)); }

// NULL stands for the current context (cuda.h, CUDA_KERNEL_NODE_PARAMS, says so for a kernel's).
CUresult context_or_current(CUcontext given, CUcontext* context) {
  *context = given;
  if (given != nullptr) return CUDA_SUCCESS;
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  *context = as<CUcontext>(here.context->handle);
  return CUDA_SUCCESS;
}

// The same fields under other names.
CUDA_KERNEL_NODE_PARAMS kernel_of(const CUgraphNodeParams& given) {
  CUDA_KERNEL_NODE_PARAMS kernel{};
  static_assert(sizeof kernel == sizeof given.kernel);
  std::memcpy(&kernel, &given.kernel, sizeof kernel);
  return kernel;
}
CUDA_HOST_NODE_PARAMS host_of(const CUgraphNodeParams& given) {
  return {given.host.fn, given.host.userData};
}
// Without the context, which these structures lack.
CUDA_MEMSET_NODE_PARAMS fill_of(const CUgraphNodeParams& given) {
  CUDA_MEMSET_NODE_PARAMS fill{};
  static_assert(sizeof fill == offsetof(CUDA_MEMSET_NODE_PARAMS_v2, ctx));
  std::memcpy(&fill, &given.memset, sizeof fill);
  return fill;
}

CUDA_BATCH_MEM_OP_NODE_PARAMS batch_of(const CUgraphNodeParams& given) {
  return {given.memOp.ctx, given.memOp.count, given.memOp.paramArray, given.memOp.flags};
}

struct NewNode {
  CUgraphNode* out;
  CUgraph graph;
  const CUgraphNode* behind;
  size_t count;
};

CUresult add_memset(const NewNode& node, const CUgraphNodeParams& given) {
  CUcontext context = nullptr;
  if (const CUresult result = context_or_current(given.memset.ctx, &context); result != 0) {
    return result;
  }
  const CUDA_MEMSET_NODE_PARAMS fill = fill_of(given);
  return run_row(opcode::cuGraphAddMemsetNode, node.out, node.graph, node.behind, node.count, &fill,
                 context);
}

CUresult add_allocation(const NewNode& node, CUgraphNodeParams* given) {
  CUDA_MEM_ALLOC_NODE_PARAMS allocation{};
  static_assert(sizeof allocation == sizeof given->alloc);
  std::memcpy(&allocation, &given->alloc, sizeof allocation);
  const CUresult result =
      custom::cuGraphAddMemAllocNode(node.out, node.graph, node.behind, node.count, &allocation);
  given->alloc.dptr = allocation.dptr;
  return result;
}

CUresult add_child(const NewNode& node, const CUDA_CHILD_GRAPH_NODE_PARAMS& given) {
  if (given.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE) return CUDA_ERROR_INVALID_VALUE;
  return run_row(opcode::cuGraphAddChildGraphNode, node.out, node.graph, node.behind, node.count,
                 given.graph);
}

CUresult add_node(const NewNode& node, CUgraphNodeParams* given) {
  switch (given->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      const CUDA_KERNEL_NODE_PARAMS kernel = kernel_of(*given);
      return custom::cuGraphAddKernelNode_v2(node.out, node.graph, node.behind, node.count,
                                             &kernel);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return custom::cuGraphAddMemcpyNode(node.out, node.graph, node.behind, node.count,
                                          &given->memcpy.copyParams, given->memcpy.copyCtx);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return add_memset(node, *given);
    case CU_GRAPH_NODE_TYPE_HOST: {
      const CUDA_HOST_NODE_PARAMS host = host_of(*given);
      return custom::cuGraphAddHostNode(node.out, node.graph, node.behind, node.count, &host);
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return add_child(node, given->graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return run_row(opcode::cuGraphAddEmptyNode, node.out, node.graph, node.behind, node.count);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return run_row(opcode::cuGraphAddEventWaitNode, node.out, node.graph, node.behind, node.count,
                     given->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return run_row(opcode::cuGraphAddEventRecordNode, node.out, node.graph, node.behind,
                     node.count, given->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
      return refuse(opcode::cuGraphAddExternalSemaphoresSignalNode);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return refuse(opcode::cuGraphAddExternalSemaphoresWaitNode);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return add_allocation(node, given);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return run_row(opcode::cuGraphAddMemFreeNode, node.out, node.graph, node.behind, node.count,
                     given->free.dptr);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
      const CUDA_BATCH_MEM_OP_NODE_PARAMS batch = batch_of(*given);
      return custom::cuGraphAddBatchMemOpNode(node.out, node.graph, node.behind, node.count,
                                              &batch);
    }
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return cuda(
          add_conditional_node(node.out, node.graph, node.behind, node.count, &given->conditional));
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

bool is_plain(const CUgraphEdgeData& edge) {
  static constexpr CUgraphEdgeData kPlain{};
  return std::memcmp(&edge, &kPlain, sizeof kPlain) == 0;
}

CUresult add_any_node(CUgraphNode* out, CUgraph graph, const CUgraphNode* behind,
                      const CUgraphEdgeData* edges, size_t count, CUgraphNodeParams* given) {
  if (out == nullptr || given == nullptr || (behind == nullptr && count != 0) ||
      count > limits::kArrayCountMax) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (given->type == CU_GRAPH_NODE_TYPE_GRAPH &&
      given->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE) {
    return cuda(add_moved_graph(out, graph, behind, edges, count, given->graph.graph));
  }
  if (edges == nullptr || std::all_of(edges, edges + count, &is_plain)) {
    return add_node({out, graph, behind, count}, given);
  }
  CUgraphNode node = nullptr;
  CUresult result = add_node({&node, graph, nullptr, 0}, given);
  if (result != CUDA_SUCCESS) return result;
  const std::vector<CUgraphNode> ends(count, node);
  result = run_row(opcode::cuGraphAddDependencies_v2, graph, behind, ends.data(), edges, count);
  if (result == CUDA_SUCCESS) {
    *out = node;
  } else {
    (void)run_row(opcode::cuGraphDestroyNode, node);
  }
  return result;
}

// Such a node has nothing to set, so only its type is checked.
CUresult check_type(CUgraphNode node, CUgraphNodeType wanted) {
  CUgraphNodeType type{};
  const CUresult result = run_row(opcode::cuGraphNodeGetType, node, &type);
  return result == CUDA_SUCCESS && type != wanted ? CUDA_ERROR_INVALID_VALUE : result;
}

CUresult set_node(CUgraphNode node, const CUgraphNodeParams* given) {
  if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (given->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      const CUDA_KERNEL_NODE_PARAMS kernel = kernel_of(*given);
      return custom::cuGraphKernelNodeSetParams_v2(node, &kernel);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return custom::cuGraphMemcpyNodeSetParams(node, &given->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const CUDA_MEMSET_NODE_PARAMS fill = fill_of(*given);
      return run_row(opcode::cuGraphMemsetNodeSetParams, node, &fill);
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
      const CUDA_HOST_NODE_PARAMS host = host_of(*given);
      return custom::cuGraphHostNodeSetParams(node, &host);
    }
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return check_type(node, given->type);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return run_row(opcode::cuGraphEventWaitNodeSetEvent, node, given->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return run_row(opcode::cuGraphEventRecordNodeSetEvent, node, given->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
      return refuse(opcode::cuGraphExternalSemaphoresSignalNodeSetParams);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return refuse(opcode::cuGraphExternalSemaphoresWaitNodeSetParams);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
      const CUDA_BATCH_MEM_OP_NODE_PARAMS batch = batch_of(*given);
      return custom::cuGraphBatchMemOpNodeSetParams(node, &batch);
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return refuse_part(*find_row(opcode::cuGraphNodeSetParams), kFixedType);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult set_memset(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams& given) {
  CUcontext context = nullptr;
  if (const CUresult result = context_or_current(given.memset.ctx, &context); result != 0) {
    return result;
  }
  const CUDA_MEMSET_NODE_PARAMS fill = fill_of(given);
  return run_row(opcode::cuGraphExecMemsetNodeSetParams, exec, node, &fill, context);
}

CUresult set_node(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams* given) {
  if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (given->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      const CUDA_KERNEL_NODE_PARAMS kernel = kernel_of(*given);
      return custom::cuGraphExecKernelNodeSetParams_v2(exec, node, &kernel);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return custom::cuGraphExecMemcpyNodeSetParams(exec, node, &given->memcpy.copyParams,
                                                    given->memcpy.copyCtx);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return set_memset(exec, node, *given);
    case CU_GRAPH_NODE_TYPE_HOST: {
      const CUDA_HOST_NODE_PARAMS host = host_of(*given);
      return custom::cuGraphExecHostNodeSetParams(exec, node, &host);
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return run_row(opcode::cuGraphExecChildGraphNodeSetParams, exec, node, given->graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return check_type(node, given->type);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return run_row(opcode::cuGraphExecEventWaitNodeSetEvent, exec, node, given->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return run_row(opcode::cuGraphExecEventRecordNodeSetEvent, exec, node,
                     given->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
      return refuse(opcode::cuGraphExecExternalSemaphoresSignalNodeSetParams);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return refuse(opcode::cuGraphExecExternalSemaphoresWaitNodeSetParams);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
      const CUDA_BATCH_MEM_OP_NODE_PARAMS batch = batch_of(*given);
      return custom::cuGraphExecBatchMemOpNodeSetParams(exec, node, &batch);
    }
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return refuse_part(*find_row(opcode::cuGraphExecNodeSetParams), kFixedType);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

namespace custom {

CUresult cuGraphAddNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                        size_t numDependencies, CUgraphNodeParams* nodeParams) {
  return add_any_node(phGraphNode, hGraph, dependencies, nullptr, numDependencies, nodeParams);
}

CUresult cuGraphAddNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                           const CUgraphNode* dependencies, const CUgraphEdgeData* dependencyData,
                           size_t numDependencies, CUgraphNodeParams* nodeParams) {
  return add_any_node(phGraphNode, hGraph, dependencies, dependencyData, numDependencies,
                      nodeParams);
}

CUresult cuGraphAddNode_v3(CUgraphNode* phGraphNode, CUgraph hGraph,
                           const CUgraphNode* dependencies, const CUgraphEdgeData* dependencyData,
                           size_t numDependencies, CUgraphNodeParams* nodeParams) {
  return add_any_node(phGraphNode, hGraph, dependencies, dependencyData, numDependencies,
                      nodeParams);
}

CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
  return set_node(hNode, nodeParams);
}

CUresult cuGraphNodeSetParams_v2(CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
  return set_node(hNode, nodeParams);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                  CUgraphNodeParams* nodeParams) {
  return set_node(hGraphExec, hNode, nodeParams);
}

}  // namespace custom
}  // namespace gpurun::client::interpose
