// cuGraphDebugDotPrint: the nodes and edges of a graph as a file.
#include "driver_abi/graph_dot.h"

#include <unordered_map>
#include <vector>

#include "emulated/api.h"
#include "emulated/api/entry.h"
#include "emulated/objects/graph.h"
#include "emulated/objects/launch.h"

namespace gpurun::emulated::api {

CUresult cuGraphDebugDotPrint(CUgraph handle, const char* path, unsigned int) {
  GPURUN_ENTER_DRIVER();
  const auto graph = handles().find<Graph>(handle);
  if (graph == nullptr || path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<driver_abi::DotNode> nodes;
  std::vector<driver_abi::DotEdge> edges;
  std::unordered_map<const GraphNode*, std::size_t> at;
  const auto all = graph->nodes();
  for (const GraphNodePtr& node : all) {
    at.emplace(node.get(), nodes.size());
    const OperationPtr operation = node->operation();
    const auto launch = std::dynamic_pointer_cast<const LaunchOperation>(operation);
    nodes.push_back({operation->graph_node_type(),
                     launch == nullptr ? std::string() : launch->launch().function->name()});
  }
  for (const GraphNodePtr& node : all) {
    for (const GraphEdge& edge : graph->edges_to(*node)) {
      const auto from = at.find(edge.node.get());
      if (from != at.end()) edges.push_back({from->second, at.at(node.get())});
    }
  }
  return static_cast<CUresult>(driver_abi::write_dot(path, driver_abi::dot_of(nodes, edges)));
}

}  // namespace gpurun::emulated::api
