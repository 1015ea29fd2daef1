// GraphExecs: the work in the client that executables have of their own (cuGraphExec...SetParams),
// and the launches that may still use it.
//
// What an executable has from its graph, the driver keeps for it, until the last launch is over.
// What is set later only the worker knows of. CUDA: setting affects later launches only, and an
// executable that is destroyed stays until its launches are complete; so each launch has a share of
// what the executable had when it was launched (docs/adr/0011-graphs-and-host-memory.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "driver_abi/cuda_abi.h"
#include "server/driver/cuda_driver.h"
#include "server/handlers/graph_hosts.h"
#include "server/worker/call.h"

namespace gpurun::server {

// Any thread.
class GraphExecs {
 public:
  using OperationPtr = GraphHosts::OperationPtr;

  explicit GraphExecs(const CudaDriver& driver) : driver_(driver) {}
  GraphExecs(const GraphExecs&) = delete;
  GraphExecs& operator=(const GraphExecs&) = delete;

  // What `node` of the executable does in later launches.
  void set(CUgraphExec exec, CUgraphNode node, OperationPtr operation);
  // Of the two nodes that `node` stands for, the driver has set one and refused the other with
  // `result`: that is what launches are answered until it is set, or the executable updated.
  void set_half(CUgraphExec exec, CUgraphNode node, OperationPtr operation, int result);
  // The memory of what `node` does, if it has `byte_count`: launches of one executable run one
  // after the other, so that they may share it.
  std::shared_ptr<GraphHosts::Shadow> shadow_of(CUgraphExec exec, CUgraphNode node,
                                                std::size_t byte_count) const;

  // In the driver's place. `call` is the call that launches; from its handler.
  CUresult launch(Call& call, CUgraphExec exec, CUstream stream);
  CUresult destroy(CUgraphExec exec);
  // It was updated: all that it does is a graph's now.
  void forget(CUgraphExec exec);

 private:
  struct Node {
    OperationPtr operation;
    OperationPtr half;  // The driver's node has its memory.
    int failure = 0;    // Of set_half().
  };
  using Nodes = std::map<CUgraphNode, Node>;
  using Share = std::vector<OperationPtr>;

  Nodes take(CUgraphExec exec);
  int share_of(CUgraphExec exec, Share* share) const;
  int give_to_capture(CUstream stream, const Share& share) const;
  void over(std::uint64_t launch);

  const CudaDriver& driver_;
  mutable std::mutex mutex_;  // Guards all below. Operations never end under it.
  std::unordered_map<CUgraphExec, Nodes> execs_;
  // Those under way, and those of which the driver does not say any more when they end.
  std::unordered_map<std::uint64_t, Share> launches_;
  std::uint64_t last_launch_ = 0;
};

// The graph that `stream` is being captured into, and, where there is just one, the node behind
// which the next will stand. 0 or the CUresult.
int look_at_capture(const CudaDriver& driver, CUstream stream, CUgraph* graph, CUgraphNode* last);

}  // namespace gpurun::server
