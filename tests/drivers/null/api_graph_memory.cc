// Memory nodes of graphs: memory of the device, and the parameters that were given for it.
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include "tests/drivers/null/api.h"
#include "tests/drivers/null/entry.h"
#include "tests/drivers/null/memory.h"

namespace gpurun::null_device::api {
namespace {

struct Node {
  CUDA_MEM_ALLOC_NODE_PARAMS parameters;
  std::vector<CUmemAccessDesc> accesses;
};
struct Nodes {
  std::mutex mutex;
  std::map<CUgraphNode, Node> by_handle;
};

Nodes& nodes() {
  alignas(Nodes) static unsigned char storage[sizeof(Nodes)];
  static auto* const all = new (storage) Nodes;
  return *all;
}

}  // namespace

CUresult cuGraphAddMemAllocNode(CUgraphNode* phGraphNode, CUgraph, const CUgraphNode*, size_t,
                                CUDA_MEM_ALLOC_NODE_PARAMS* nodeParams) {
  if (phGraphNode == nullptr || nodeParams == nullptr || nodeParams->bytesize == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  nodeParams->dptr = allocate(nodeParams->bytesize, MemoryKind::kDevice);
  if (nodeParams->dptr == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  Node node{*nodeParams, {}};
  node.accesses.assign(nodeParams->accessDescs,
                       nodeParams->accessDescs + nodeParams->accessDescCount);
  *phGraphNode = reinterpret_cast<CUgraphNode>(mint(driver_abi::HandleKind::kGraphNode));
  Nodes& all = nodes();
  const std::lock_guard lock(all.mutex);
  all.by_handle[*phGraphNode] = std::move(node);
  return CUDA_SUCCESS;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS* params_out) {
  Nodes& all = nodes();
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_handle.find(hNode);
  if (params_out == nullptr || found == all.by_handle.end()) return CUDA_ERROR_INVALID_VALUE;
  *params_out = found->second.parameters;
  params_out->accessDescs = found->second.accesses.data();
  return CUDA_SUCCESS;
}

}  // namespace gpurun::null_device::api
