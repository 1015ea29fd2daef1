// Graph host entries: host nodes and memcpy nodes of graphs (CUDA Driver API manual, "Graph
// Management"). client/session/graph_host.h runs their part in this process at a launch.
#include "client/interpose/capture/exec_changes.h"
#include "client/interpose/capture/graph_nodes.h"
#include "client/interpose/custom.h"
#include "client/interpose/driver/graph_work.h"
#include "client/interpose/memory/memory_changes.h"

namespace gpurun::client::interpose {
namespace {

// Graphs belong to no context, but the copies in them run in one.
int enter(EntryContext& here, CUcontext given, CallSite* site) {
  if (const int result = here.enter(); result != 0) return result;
  if (given != nullptr) {
    if (const int result = here.check(handle_of(given), HandleKind::kContext); result != 0) {
      return result;
    }
  } else if (here.enter_context() != 0) {
    here.context = nullptr;
  }
  *site = here.site();
  if (given != nullptr) site->context = handle_of(given);
  return 0;
}

// `make_work` describes the node's work, after the handles were checked.
template <typename MakeWork>
int add_node(std::uint16_t row, CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
             std::size_t count, CUcontext context, MakeWork make_work) {
  if (out == nullptr || (dependencies == nullptr && count != 0) || count > limits::kArrayCountMax) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  EntryContext here;
  CallSite site;
  if (const int result = enter(here, context, &site); result != 0) return result;
  site.flags = protocol::kFlagPassesStreams;
  if (const int result = here.check(handle_of(graph), HandleKind::kGraph); result != 0) {
    return result;
  }
  std::vector<Handle> behind;
  for (std::size_t i = 0; i < count; ++i) {
    behind.push_back(handle_of(dependencies[i]));
    const int result = here.check(behind.back(), HandleKind::kGraphNode);
    if (result != 0) return result;
  }
  const Sound sound = check_dependencies(here.handles(), handle_of(graph), behind);
  if (sound == Sound::kWrong) return CUDA_ERROR_INVALID_VALUE;
  GraphWork work;
  if (const int result = make_work(here, &work); result != 0) return result;
  const Handle node = mint_node(here.handles(), handle_of(graph), 0);
  if (node == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const bool awaited = sound == Sound::kUnknown || !work.sure;
  work.payload.graph = handle_of(graph);
  work.payload.node = node;
  bool added = false;
  const int result = send_work(here, row, site, std::move(work), behind, awaited, &added);
  if (added) {
    *out = as<CUgraphNode>(node);
  } else {
    here.handles().retire(node);
  }
  return result;
}

// All of a change that the driver may judge. Empty: it is never posted.
ExecChange change_of_work(const EntryContext& here, std::uint16_t row, const CallSite& site,
                          const GraphWork& work) {
  using protocol::GraphWork;
  const protocol::GraphNodePayload& node = work.payload;
  const auto kind = static_cast<std::uint64_t>(node.work);
  if (node.work == GraphWork::kFunction) {
    ExecChange change = change_of(here.handles(), node.node);
    change.insert(change.end(), {row, kind});
    return change;
  }
  const bool in = node.work == GraphWork::kCopyIn, out = node.work == GraphWork::kCopyOut;
  // The device reaches that host memory, and the worker may have a copy without an operation.
  const bool reached = (in && node.source.address != 0) || (out && node.destination.address != 0);
  const protocol::GraphCopySide& from = in ? node.destination : node.source;
  const protocol::GraphCopySide& to = out ? node.source : node.destination;
  if (!work.sure || reached || from.array != 0 || to.array != 0) return {};
  return memory_change_of(here.handles(), node.node,
                          {row, site.context, kind, node.width, node.lines, node.slices,
                           from.line_pitch, from.slice_pitch, to.line_pitch, to.slice_pitch},
                          {from.address, to.address});
}

// Posted if the driver has accepted the same change before.
int set_in_exec(const EntryContext& here, std::uint16_t row, const CallSite& site, GraphWork work) {
  const Handle exec = work.payload.graph;
  const bool copies = work.payload.work != protocol::GraphWork::kFunction;
  const ExecChange change = change_of_work(here, row, site, work);
  const bool posted = was_accepted(exec, change);
  bool done = false;
  const int result = send_work(here, row, site, std::move(work), {}, !posted, &done);
  if (posted) return result != 0 ? result : changed_early(here, exec, change, {0, copies});
  if (done && copies) accepted_ordered(exec, change);
  if (done && !copies) accepted(exec, change);
  return result;
}

// Without `in_exec`, changes the node in the graph itself.
template <typename MakeWork>
int set_node(std::uint16_t row, bool in_exec, CUgraphExec exec, CUgraphNode node, CUcontext context,
             MakeWork make_work) {
  EntryContext here;
  CallSite site;
  if (const int result = enter(here, context, &site); result != 0) return result;
  // A graph is changed beside the device's work. An executable has launches before the change.
  if (in_exec) {
    const Handle context_of_copy = site.context;
    site = exec_site(here, handle_of(exec));
    site.context = context_of_copy;
  } else {
    site.flags = protocol::kFlagPassesStreams;
  }
  int result = in_exec ? here.check(handle_of(exec), HandleKind::kGraphExec) : 0;
  if (result == 0) result = here.check(handle_of(node), HandleKind::kGraphNode);
  GraphWork work;
  if (result == 0) result = make_work(here, &work);
  if (result != 0) return result;
  work.payload.graph = in_exec ? handle_of(exec) : Handle{0};
  work.payload.node = handle_of(node);
  return in_exec ? set_in_exec(here, row, site, std::move(work))
                 : send_work(here, row, site, std::move(work), {}, true);
}

int work_of_host(const CUDA_HOST_NODE_PARAMS* given, GraphWork* work) {
  if (given == nullptr || given->fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *work = work_of(given->fn, given->userData);
  return 0;
}

}  // namespace

namespace custom {

CUresult cuGraphAddHostNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                            const CUgraphNode* dependencies, size_t numDependencies,
                            const CUDA_HOST_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto work = [=](const EntryContext&, GraphWork* made) {
    return work_of_host(nodeParams, made);
  };
  return cuda(add_node(opcode::cuGraphAddHostNode, phGraphNode, hGraph, dependencies,
                       numDependencies, nullptr, work));
}

CUresult cuGraphAddMemcpyNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                              const CUgraphNode* dependencies, size_t numDependencies,
                              const CUDA_MEMCPY3D* copyParams, CUcontext ctx) {
  if (copyParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto work = [=](const EntryContext& here, GraphWork* made) {
    return work_of(here, copyParams, made);
  };
  return cuda(add_node(opcode::cuGraphAddMemcpyNode, phGraphNode, hGraph, dependencies,
                       numDependencies, ctx, work));
}

CUresult cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto work = [=](const EntryContext&, GraphWork* made) {
    return work_of_host(nodeParams, made);
  };
  return cuda(set_node(opcode::cuGraphHostNodeSetParams, false, nullptr, hNode, nullptr, work));
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto work = [=](const EntryContext& here, GraphWork* made) {
    return work_of(here, nodeParams, made);
  };
  return cuda(set_node(opcode::cuGraphMemcpyNodeSetParams, false, nullptr, hNode, nullptr, work));
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                      const CUDA_HOST_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto work = [=](const EntryContext&, GraphWork* made) {
    return work_of_host(nodeParams, made);
  };
  return cuda(
      set_node(opcode::cuGraphExecHostNodeSetParams, true, hGraphExec, hNode, nullptr, work));
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMCPY3D* copyParams, CUcontext ctx) {
  if (copyParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto work = [=](const EntryContext& here, GraphWork* made) {
    return work_of(here, copyParams, made);
  };
  return cuda(set_node(opcode::cuGraphExecMemcpyNodeSetParams, true, hGraphExec, hNode, ctx, work));
}

}  // namespace custom
}  // namespace gpurun::client::interpose
