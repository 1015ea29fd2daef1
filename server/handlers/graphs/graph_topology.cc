// GraphTopology: the driver's functions on a graph's shape, without the hidden nodes.
#include "server/handlers/graphs/graph_topology.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "driver_abi/opcodes.h"
#include "server/worker/execution/call.h"

namespace gpurun::server {
namespace {

namespace opcode = driver_abi::opcode;
using protocol::GraphWork;

thread_local GraphTopology* t_topology = nullptr;
thread_local Call* t_call = nullptr;

struct Edges {
  std::vector<CUgraphNode> from, to;
  std::vector<CUgraphEdgeData> data;
};

}  // namespace

// The functions that replace the driver's. Each has the driver's signature.
struct TopologyCalls {
  static GraphTopology& here() { return *t_topology; }
  static const CudaDriver& driver() { return here().driver_; }

  // Manual, cuGraphGetNodes: the unused part of a list is set to NULL.
  static CUresult give(const std::vector<CUgraphNode>& nodes, CUgraphNode* list,
                       std::size_t* count) {
    if (list == nullptr) {
      *count = nodes.size();
      return CUDA_SUCCESS;
    }
    for (std::size_t i = 0; i < *count; ++i) list[i] = i < nodes.size() ? nodes[i] : nullptr;
    *count = std::min(*count, nodes.size());
    return CUDA_SUCCESS;
  }

  static void give_data(const std::vector<CUgraphEdgeData>& all, CUgraphEdgeData* data,
                        std::size_t room) {
    for (std::size_t i = 0; data != nullptr && i < room; ++i) {
      data[i] = i < all.size() ? all[i] : CUgraphEdgeData{};
    }
  }

  // Reads a whole list of the driver with `ask(list, count)`.
  template <typename Ask>
  static CUresult whole(Ask ask, std::vector<CUgraphNode>* nodes) {
    std::size_t count = 0;
    CUresult result = ask(nullptr, &count);
    if (result != CUDA_SUCCESS || count == 0) return result;
    nodes->resize(count);
    result = ask(nodes->data(), &count);
    nodes->resize(count);
    return result;
  }

  static CUresult get_nodes(CUgraph graph, CUgraphNode* list, std::size_t* count) {
    if (count == nullptr || !here().has_host_nodes(graph)) {
      return GPURUN_DRIVER(driver(), cuGraphGetNodes, graph, list, count);
    }
    std::vector<CUgraphNode> nodes;
    const CUresult result = whole(
        [graph](CUgraphNode* to, std::size_t* size) {
          return GPURUN_DRIVER(driver(), cuGraphGetNodes, graph, to, size);
        },
        &nodes);
    if (result != CUDA_SUCCESS) return result;
    std::erase_if(nodes, [](CUgraphNode node) { return here().shown(node) != node; });
    return give(nodes, list, count);
  }

  static CUresult get_root_nodes(CUgraph graph, CUgraphNode* list, std::size_t* count) {
    const CUresult result = GPURUN_DRIVER(driver(), cuGraphGetRootNodes, graph, list, count);
    if (result != CUDA_SUCCESS || list == nullptr) return result;
    for (std::size_t i = 0; i < *count; ++i) list[i] = here().shown(list[i]);
    return result;
  }

  static CUresult read_edges(CUgraph graph, Edges* edges) {
    std::size_t count = 0;
    CUresult result =
        GPURUN_DRIVER(driver(), cuGraphGetEdges_v2, graph, nullptr, nullptr, nullptr, &count);
    if (result != CUDA_SUCCESS) return result;
    edges->from.resize(count);
    edges->to.resize(count);
    edges->data.resize(count);
    if (count == 0) return result;
    result = GPURUN_DRIVER(driver(), cuGraphGetEdges_v2, graph, edges->from.data(),
                           edges->to.data(), edges->data.data(), &count);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const CUgraphNode from = here().shown(edges->from[i]);
      const CUgraphNode to = here().shown(edges->to[i]);
      if (from == to) continue;  // Within one node of the program.
      edges->from[kept] = from;
      edges->to[kept] = to;
      edges->data[kept++] = edges->data[i];
    }
    edges->from.resize(kept);
    edges->to.resize(kept);
    edges->data.resize(kept);
    return result;
  }

  static CUresult get_edges_v2(CUgraph graph, CUgraphNode* from, CUgraphNode* to,
                               CUgraphEdgeData* data, std::size_t* count) {
    if (count == nullptr || (from == nullptr) != (to == nullptr) || !here().has_host_nodes(graph)) {
      return GPURUN_DRIVER(driver(), cuGraphGetEdges_v2, graph, from, to, data, count);
    }
    Edges edges;
    if (const CUresult result = read_edges(graph, &edges); result != CUDA_SUCCESS) return result;
    // Manual, cuGraphGetEdges: a list without the data would hide some.
    static constexpr CUgraphEdgeData kPlain{};
    const bool plain = std::all_of(edges.data.begin(), edges.data.end(), [](const auto& each) {
      return std::memcmp(&each, &kPlain, sizeof each) == 0;
    });
    if (from != nullptr && data == nullptr && !plain) return CUDA_ERROR_LOSSY_QUERY;
    std::size_t room = *count;
    give_data(edges.data, data, from == nullptr ? 0 : room);
    (void)give(edges.from, from, &room);
    return give(edges.to, to, count);
  }
  static CUresult get_edges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, std::size_t* count) {
    if (!here().has_host_nodes(graph)) {
      return GPURUN_DRIVER(driver(), cuGraphGetEdges, graph, from, to, count);
    }
    return get_edges_v2(graph, from, to, nullptr, count);
  }

  static CUresult get_dependencies(CUgraphNode node, CUgraphNode* list, std::size_t* count) {
    return GPURUN_DRIVER(driver(), cuGraphNodeGetDependencies, here().entry_of(node), list, count);
  }
  static CUresult get_dependencies_v2(CUgraphNode node, CUgraphNode* list, CUgraphEdgeData* data,
                                      std::size_t* count) {
    return GPURUN_DRIVER(driver(), cuGraphNodeGetDependencies_v2, here().entry_of(node), list, data,
                         count);
  }
  static CUresult get_dependents(CUgraphNode node, CUgraphNode* list, std::size_t* count) {
    const CUresult result =
        GPURUN_DRIVER(driver(), cuGraphNodeGetDependentNodes, node, list, count);
    if (result != CUDA_SUCCESS || list == nullptr) return result;
    for (std::size_t i = 0; i < *count; ++i) list[i] = here().shown(list[i]);
    return result;
  }
  static CUresult get_dependents_v2(CUgraphNode node, CUgraphNode* list, CUgraphEdgeData* data,
                                    std::size_t* count) {
    const CUresult result =
        GPURUN_DRIVER(driver(), cuGraphNodeGetDependentNodes_v2, node, list, data, count);
    if (result != CUDA_SUCCESS || list == nullptr) return result;
    for (std::size_t i = 0; i < *count; ++i) list[i] = here().shown(list[i]);
    return result;
  }

  static std::vector<CUgraphNode> entries(const CUgraphNode* to, std::size_t count) {
    std::vector<CUgraphNode> found;
    for (std::size_t i = 0; to != nullptr && i < count; ++i) {
      found.push_back(here().entry_of(to[i]));
    }
    return found;
  }
  static CUresult add_dependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   std::size_t count) {
    const std::vector<CUgraphNode> ends = entries(to, count);
    return GPURUN_DRIVER(driver(), cuGraphAddDependencies, graph, from,
                         to == nullptr ? nullptr : ends.data(), count);
  }
  static CUresult add_dependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                      const CUgraphEdgeData* data, std::size_t count) {
    const std::vector<CUgraphNode> ends = entries(to, count);
    return GPURUN_DRIVER(driver(), cuGraphAddDependencies_v2, graph, from,
                         to == nullptr ? nullptr : ends.data(), data, count);
  }
  static CUresult remove_dependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                      std::size_t count) {
    const std::vector<CUgraphNode> ends = entries(to, count);
    return GPURUN_DRIVER(driver(), cuGraphRemoveDependencies, graph, from,
                         to == nullptr ? nullptr : ends.data(), count);
  }
  static CUresult remove_dependencies_v2(CUgraph graph, const CUgraphNode* from,
                                         const CUgraphNode* to, const CUgraphEdgeData* data,
                                         std::size_t count) {
    const std::vector<CUgraphNode> ends = entries(to, count);
    return GPURUN_DRIVER(driver(), cuGraphRemoveDependencies_v2, graph, from,
                         to == nullptr ? nullptr : ends.data(), data, count);
  }

  static CUresult get_type(CUgraphNode node, CUgraphNodeType* type) {
    const auto own = here().find(node);
    const bool copy = own.has_value() && own->work != GraphWork::kFunction;
    const CUresult result =
        GPURUN_DRIVER(driver(), cuGraphNodeGetType, copy ? own->copy() : node, type);
    if (result == CUDA_SUCCESS && own.has_value() && own->copies) *type = CU_GRAPH_NODE_TYPE_MEMCPY;
    return result;
  }

  // The driver may reuse the values for the next graph at once, so they are forgotten before.
  template <typename T>
  static void forget_inside(T* object, HandleKind kind) {
    HandleTable& handles = t_call->handles();
    const auto value = reinterpret_cast<std::uintptr_t>(object);
    const std::uint64_t handle = handles.client_handle_of(value, kind);
    if (handle == 0) return;
    for (const DriverValue graph : handles.end_owned(handle)) {
      for (const GraphTopology::HostNode& node :
           here().nodes_of(reinterpret_cast<CUgraph>(static_cast<std::uintptr_t>(graph)))) {
        here().forget(node.exit);
      }
    }
  }

  static CUresult destroy_node(CUgraphNode node) {
    const auto own = here().find(node);
    forget_inside(node, HandleKind::kGraphNode);
    const CUresult result = GPURUN_DRIVER(driver(), cuGraphDestroyNode, node);
    if (result != CUDA_SUCCESS || !own.has_value()) return result;
    here().forget(node);
    if (own->entry != node) (void)GPURUN_DRIVER(driver(), cuGraphDestroyNode, own->entry);
    return GPURUN_DRIVER(driver(), cuGraphReleaseUserObject, own->graph, own->object, 1u);
  }

  static CUresult clone(CUgraph* made, CUgraph graph) {
    const CUresult result = GPURUN_DRIVER(driver(), cuGraphClone, made, graph);
    if (result != CUDA_SUCCESS) return result;
    for (GraphTopology::HostNode node : here().nodes_of(graph)) {
      CUgraphNode entry = nullptr, exit = nullptr;
      CUresult found = GPURUN_DRIVER(driver(), cuGraphNodeFindInClone, &entry, node.entry, *made);
      if (found == CUDA_SUCCESS) {
        found = GPURUN_DRIVER(driver(), cuGraphNodeFindInClone, &exit, node.exit, *made);
      }
      if (found != CUDA_SUCCESS) continue;
      node.graph = *made;
      node.entry = entry;
      node.exit = exit;
      here().add(node);
    }
    return result;
  }

  static CUresult destroy(CUgraph graph) {
    const std::vector<GraphTopology::HostNode> nodes = here().nodes_of(graph);
    forget_inside(graph, HandleKind::kGraph);
    for (const GraphTopology::HostNode& node : nodes) here().forget(node.exit);
    const CUresult result = GPURUN_DRIVER(driver(), cuGraphDestroy, graph);
    if (result == CUDA_SUCCESS) return result;
    for (const GraphTopology::HostNode& node : nodes) here().add(node);
    return result;
  }

  static CUresult exec_destroy(CUgraphExec exec) { return here().execs().destroy(exec); }
  static CUresult launch(CUgraphExec exec, CUstream stream) {
    return here().execs().launch(*t_call, exec, stream);
  }
  static CUresult exec_update(CUgraphExec exec, CUgraph graph, CUgraphNode* error_node,
                              CUgraphExecUpdateResult* why) {
    const CUresult result =
        GPURUN_DRIVER(driver(), cuGraphExecUpdate, exec, graph, error_node, why);
    if (error_node != nullptr) *error_node = here().shown(*error_node);
    if (result == CUDA_SUCCESS) here().execs().forget(exec);
    return result;
  }

  // The host node beside a copy out cannot be disabled, and would send old bytes.
  static CUresult set_enabled(CUgraphExec exec, CUgraphNode node, unsigned enabled) {
    const auto own = here().find(node);
    if (own.has_value() && own->work == GraphWork::kCopyOut) {
      spdlog::warn("a graph's copy to host memory cannot be switched off yet");
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    return GPURUN_DRIVER(driver(), cuGraphNodeSetEnabled, exec, node, enabled);
  }

  static CUresult set_child(CUgraphExec exec, CUgraphNode node, CUgraph child) {
    if (here().has_host_nodes(child)) {
      spdlog::warn("an executable's child graph cannot be exchanged yet for one with host work");
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    return GPURUN_DRIVER(driver(), cuGraphExecChildGraphNodeSetParams, exec, node, child);
  }
};

GraphTopology::Scope::Scope(GraphTopology& topology, Call& call) {
  t_topology = &topology;
  t_call = &call;
}
GraphTopology::Scope::~Scope() {
  t_topology = nullptr;
  t_call = nullptr;
}

void* GraphTopology::substitute(std::uint16_t code) {
  using Calls = TopologyCalls;
  const auto place = [](auto* function) { return reinterpret_cast<void*>(function); };
  switch (code) {
    case opcode::cuGraphGetNodes:
      return place(&Calls::get_nodes);
    case opcode::cuGraphGetRootNodes:
      return place(&Calls::get_root_nodes);
    case opcode::cuGraphGetEdges:
      return place(&Calls::get_edges);
    case opcode::cuGraphGetEdges_v2:
      return place(&Calls::get_edges_v2);
    case opcode::cuGraphNodeGetDependencies:
      return place(&Calls::get_dependencies);
    case opcode::cuGraphNodeGetDependencies_v2:
      return place(&Calls::get_dependencies_v2);
    case opcode::cuGraphNodeGetDependentNodes:
      return place(&Calls::get_dependents);
    case opcode::cuGraphNodeGetDependentNodes_v2:
      return place(&Calls::get_dependents_v2);
    case opcode::cuGraphAddDependencies:
      return place(&Calls::add_dependencies);
    case opcode::cuGraphAddDependencies_v2:
      return place(&Calls::add_dependencies_v2);
    case opcode::cuGraphRemoveDependencies:
      return place(&Calls::remove_dependencies);
    case opcode::cuGraphRemoveDependencies_v2:
      return place(&Calls::remove_dependencies_v2);
    case opcode::cuGraphNodeGetType:
      return place(&Calls::get_type);
    case opcode::cuGraphDestroyNode:
      return place(&Calls::destroy_node);
    case opcode::cuGraphClone:
      return place(&Calls::clone);
    case opcode::cuGraphDestroy:
      return place(&Calls::destroy);
    case opcode::cuGraphExecDestroy:
      return place(&Calls::exec_destroy);
    case opcode::cuGraphExecUpdate:
      return place(&Calls::exec_update);
    case opcode::cuGraphLaunch:
      return place(&Calls::launch);
    case opcode::cuGraphNodeSetEnabled:
      return place(&Calls::set_enabled);
    case opcode::cuGraphExecChildGraphNodeSetParams:
      return place(&Calls::set_child);
    default:
      return nullptr;
  }
}

void GraphTopology::add(const HostNode& node) {
  const std::lock_guard lock(mutex_);
  nodes_[node.exit] = node;
  if (node.entry != node.exit) hidden_[node.entry] = node.exit;
}

std::optional<GraphTopology::HostNode> GraphTopology::find(CUgraphNode exit) const {
  const std::lock_guard lock(mutex_);
  const auto found = nodes_.find(exit);
  if (found == nodes_.end()) return std::nullopt;
  return found->second;
}

CUgraphNode GraphTopology::shown(CUgraphNode node) const {
  const std::lock_guard lock(mutex_);
  const auto found = hidden_.find(node);
  return found == hidden_.end() ? node : found->second;
}

CUgraphNode GraphTopology::entry_of(CUgraphNode node) const {
  const auto own = find(node);
  return own.has_value() ? own->entry : node;
}

bool GraphTopology::has_host_nodes(CUgraph graph) const { return !nodes_of(graph).empty(); }

std::vector<GraphTopology::HostNode> GraphTopology::nodes_of(CUgraph graph) const {
  const std::lock_guard lock(mutex_);
  std::vector<HostNode> found;
  for (const auto& [exit, node] : nodes_) {
    if (node.graph == graph) found.push_back(node);
  }
  return found;
}

void GraphTopology::forget(CUgraphNode exit) {
  const std::lock_guard lock(mutex_);
  const auto found = nodes_.find(exit);
  if (found == nodes_.end()) return;
  hidden_.erase(found->second.entry);
  nodes_.erase(found);
}

}  // namespace gpurun::server
