// Graph dot entry: cuGraphDebugDotPrint. The file is the program's, so the client writes it, and
// asks for the graph by the calls that a program would make.
#include <algorithm>
#include <vector>

#include "client/interpose/call/forward.h"
#include "client/interpose/custom.h"
#include "client/interpose/entry/run_row.h"
#include "driver_abi/graph_dot.h"

namespace gpurun::client::interpose {
namespace {

using driver_abi::DotEdge;
using driver_abi::DotNode;
using Nodes = std::vector<CUgraphNode>;

CUresult read_nodes(CUgraph graph, Nodes* nodes) {
  std::size_t count = 0;
  CUresult result =
      run_row(opcode::cuGraphGetNodes, graph, static_cast<CUgraphNode*>(nullptr), &count);
  if (result != CUDA_SUCCESS || count == 0) return result;
  nodes->resize(count);
  result = run_row(opcode::cuGraphGetNodes, graph, nodes->data(), &count);
  nodes->resize(std::min(count, nodes->size()));
  return result;
}

CUresult read_edges(CUgraph graph, const Nodes& nodes, std::vector<DotEdge>* edges) {
  std::size_t count = 0;
  CUresult result =
      run_row(opcode::cuGraphGetEdges_v2, graph, static_cast<CUgraphNode*>(nullptr),
              static_cast<CUgraphNode*>(nullptr), static_cast<CUgraphEdgeData*>(nullptr), &count);
  if (result != CUDA_SUCCESS || count == 0) return result;
  Nodes from(count), to(count);
  std::vector<CUgraphEdgeData> data(count);
  result = run_row(opcode::cuGraphGetEdges_v2, graph, from.data(), to.data(), data.data(), &count);
  if (result != CUDA_SUCCESS) return result;
  const auto index_of = [&nodes](CUgraphNode node) {
    return static_cast<std::size_t>(std::find(nodes.begin(), nodes.end(), node) - nodes.begin());
  };
  for (std::size_t i = 0; i < std::min(count, from.size()); ++i) {
    const DotEdge edge{index_of(from[i]), index_of(to[i])};
    if (edge.from < nodes.size() && edge.to < nodes.size()) edges->push_back(edge);
  }
  return CUDA_SUCCESS;
}

CUresult describe(CUgraphNode node, DotNode* out) {
  CUresult result = run_row(opcode::cuGraphNodeGetType, node, &out->type);
  if (result != CUDA_SUCCESS || out->type != CU_GRAPH_NODE_TYPE_KERNEL) return result;
  CUDA_KERNEL_NODE_PARAMS kernel{};
  result = custom::cuGraphKernelNodeGetParams_v2(node, &kernel);
  if (result != CUDA_SUCCESS) return result;
  const char* name = nullptr;
  result = kernel.func != nullptr ? custom::cuFuncGetName(&name, kernel.func)
                                  : custom::cuKernelGetName(&name, kernel.kern);
  if (result == CUDA_SUCCESS) out->kernel = name;
  return result;
}

}  // namespace

namespace custom {

CUresult cuGraphDebugDotPrint(CUgraph hGraph, const char* path, unsigned int) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Nodes nodes;
  CUresult result = read_nodes(hGraph, &nodes);
  std::vector<DotEdge> edges;
  if (result == CUDA_SUCCESS) result = read_edges(hGraph, nodes, &edges);
  std::vector<DotNode> described(nodes.size());
  for (std::size_t i = 0; i < nodes.size() && result == CUDA_SUCCESS; ++i) {
    result = describe(nodes[i], &described[i]);
  }
  if (result != CUDA_SUCCESS) return result;
  return cuda(driver_abi::write_dot(path, driver_abi::dot_of(described, edges)));
}

}  // namespace custom
}  // namespace gpurun::client::interpose
