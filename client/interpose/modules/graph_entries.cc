// Graph entries: kernel nodes of graphs (CUDA Driver API manual, "Graph Management"), checked and
// packed like launches. Other nodes that need no packing are generated rows.
#include <array>
#include <cstddef>
#include <cstring>

#include "client/interpose/capture/exec_changes.h"
#include "client/interpose/capture/graph_nodes.h"
#include "client/interpose/custom.h"
#include "client/interpose/modules/host_pointers.h"
#include "client/interpose/modules/launch.h"
#include "client/interpose/modules/objects.h"

namespace gpurun::client::interpose {
namespace {

using modules::Function;
using protocol::KernelNode;

// Packs the node's kernel and its parameters into `node`.
int pack_kernel(const EntryContext& here, const CUDA_KERNEL_NODE_PARAMS* given, KernelNode* node,
                Function** packed_function = nullptr) {
  if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Manual: func, or kern when func is NULL.
  const CUfunction named =
      given->func != nullptr ? given->func : reinterpret_cast<CUfunction>(given->kern);
  Function* function = nullptr;
  if (const int result = modules::find_function(here, named, &function); result != 0) return result;
  node->context = handle_of(given->ctx);
  if (node->context != 0) {
    const int result = here.check(node->context, HandleKind::kContext);
    if (result != 0) return result;
  }
  node->launch.function = function->handle;
  node->launch.grid[0] = given->gridDimX;
  node->launch.grid[1] = given->gridDimY;
  node->launch.grid[2] = given->gridDimZ;
  node->launch.block[0] = given->blockDimX;
  node->launch.block[1] = given->blockDimY;
  node->launch.block[2] = given->blockDimZ;
  node->launch.shared_bytes = given->sharedMemBytes;
  const modules::LaunchLimits limits =
      modules::limits_of(here.devices().device(here.context->ordinal), *function);
  if (const int result = modules::check_launch(limits, node->launch); result != 0) return result;
  if (here.devices().emulated()) {
    const int refused =
        modules::check_cluster(function->info, function->required_cluster(), node->launch, {});
    if (refused != 0) return refused;
  }
  modules::PackedParameters packed;
  const int result = packed.pack(function->info, given->kernelParams, given->extra);
  if (result != 0) return result;
  modules::look_for_host_pointers(here, function->info, packed.block,
                                  node->context != 0 ? node->context : here.context->handle);
  node->launch.parameter_bytes = static_cast<std::uint32_t>(packed.block.size());
  node->launch.layout_hash = packed.layout_hash;
  node->block.assign(packed.block.begin(), packed.block.end());
  if (packed_function != nullptr) *packed_function = function;
  return 0;
}

CallSite raw(CallSite site, std::uint16_t row) {
  site.opcode = row;
  site.form = protocol::Form::kRaw;
  return site;
}
CallSite site_of(const EntryContext& here, std::uint16_t row) {
  return raw(here.passing_site(), row);
}

// The launch without its parameters' values, the contexts, and the function's attributes, which the
// program may have set since.
ExecChange launch_change(const EntryContext& here, const KernelNode& node,
                         const Function& function) {
  ExecChange change = change_of(here.handles(), node.node);
  change.push_back(node.context);
  change.push_back(here.context->handle);
  std::array<std::uint64_t, sizeof node.launch / sizeof(std::uint64_t)> launch{};
  static_assert(sizeof launch == sizeof node.launch);
  std::memcpy(launch.data(), &node.launch, sizeof launch);
  change.insert(change.end(), launch.begin(), launch.end());
  for (const auto& value : function.values) {
    change.push_back(static_cast<std::uint64_t>(value.load(std::memory_order_relaxed)));
  }
  return change;
}

int set_in_exec(const EntryContext& here, const KernelNode& node, const Function& function) {
  const CallSite site = raw(exec_site(here, node.graph), opcode::cuGraphExecKernelNodeSetParams_v2);
  const ExecChange change = launch_change(here, node, function);
  const Bytes payload = protocol::pack(node);
  if (was_accepted(node.graph, change)) {
    const int result = here.session().post(*here.lane, site, ByteView(payload));
    return result != 0 ? result : changed_early(here, node.graph, change);
  }
  Reply reply;
  reply.result = -1;  // Not answered.
  const int result = here.session().call(*here.lane, site, ByteView(payload), &reply);
  if (reply.result == 0) accepted(node.graph, change);
  return result;
}

// The structure of CUDA 11 lacks the last two members: a library's kernel, and the context.
CUDA_KERNEL_NODE_PARAMS newer(const CUDA_KERNEL_NODE_PARAMS_v1& given) {
  CUDA_KERNEL_NODE_PARAMS made{};
  static_assert(sizeof given == offsetof(CUDA_KERNEL_NODE_PARAMS, kern));
  std::memcpy(&made, &given, sizeof given);
  return made;
}

}  // namespace

namespace custom {

CUresult cuGraphAddKernelNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                              const CUgraphNode* dependencies, size_t numDependencies,
                              const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS kernel = newer(*nodeParams);
  return custom::cuGraphAddKernelNode_v2(phGraphNode, hGraph, dependencies, numDependencies,
                                         &kernel);
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode,
                                    const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS kernel = newer(*nodeParams);
  return custom::cuGraphKernelNodeSetParams_v2(hNode, &kernel);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS kernel = newer(*nodeParams);
  return custom::cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, &kernel);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                                 const CUgraphNode* dependencies, size_t numDependencies,
                                 const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  if (phGraphNode == nullptr || nodeParams == nullptr ||
      (dependencies == nullptr && numDependencies != 0) ||
      numDependencies > limits::kArrayCountMax) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  KernelNode node;
  node.graph = handle_of(hGraph);
  if (const int result = here.check(node.graph, HandleKind::kGraph); result != 0) {
    return cuda(result);
  }
  for (std::size_t i = 0; i < numDependencies; ++i) {
    node.dependencies.push_back(handle_of(dependencies[i]));
    const int result = here.check(node.dependencies.back(), HandleKind::kGraphNode);
    if (result != 0) return cuda(result);
  }
  const Sound sound = check_dependencies(here.handles(), node.graph, node.dependencies);
  if (sound == Sound::kWrong) return CUDA_ERROR_INVALID_VALUE;
  if (const int result = pack_kernel(here, nodeParams, &node); result != 0) return cuda(result);
  node.node = mint_node(here.handles(), node.graph, here.context->handle);
  if (node.node == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const Bytes payload = protocol::pack(node);
  const CallSite site = site_of(here, opcode::cuGraphAddKernelNode_v2);
  const bool posted = sound == Sound::kRight;
  Reply reply;
  reply.result = -1;  // Not answered.
  const int result = posted ? here.session().post(*here.lane, site, ByteView(payload))
                            : here.session().call(*here.lane, site, ByteView(payload), &reply);
  // An earlier call's failure may be returned here although the node was added.
  if ((posted ? result : reply.result) == 0) {
    *phGraphNode = as<CUgraphNode>(node.node);
  } else {
    here.handles().retire(node.node);
  }
  return cuda(result);
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode,
                                       const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  KernelNode node;
  node.node = handle_of(hNode);
  if (const int result = here.check(node.node, HandleKind::kGraphNode); result != 0) {
    return cuda(result);
  }
  if (const int result = pack_kernel(here, nodeParams, &node); result != 0) return cuda(result);
  const Bytes payload = protocol::pack(node);
  Reply reply;
  return cuda(here.session().call(*here.lane, site_of(here, opcode::cuGraphKernelNodeSetParams_v2),
                                  ByteView(payload), &reply));
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                           const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  KernelNode node;
  node.graph = handle_of(hGraphExec);
  node.node = handle_of(hNode);
  int result = here.check(node.graph, HandleKind::kGraphExec);
  if (result == 0) result = here.check(node.node, HandleKind::kGraphNode);
  Function* function = nullptr;
  if (result == 0) result = pack_kernel(here, nodeParams, &node, &function);
  return cuda(result != 0 ? result : set_in_exec(here, node, *function));
}

}  // namespace custom
}  // namespace gpurun::client::interpose
