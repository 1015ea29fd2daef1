// GraphExecs: the client work that executable graphs have of their own (cuGraphExec...SetParams),
// and the launches that may still use it.
//
// The driver keeps work from the graph for the executable until the last launch has ended. Only the
// worker knows of work that is set later. In CUDA such a change affects later launches only, and a
// destroyed executable stays until its launches are complete. So each launch has a share of the
// work that the executable had at that launch (docs/adr/0011-graphs-and-host-memory.md).
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
#include "server/handlers/graphs/graph_hosts.h"
#include "server/worker/execution/call.h"

namespace gpurun::server {

// Any thread.
class GraphExecs {
 public:
  using OperationPtr = GraphHosts::OperationPtr;

  explicit GraphExecs(const CudaDriver& driver) : driver_(driver) {}
  GraphExecs(const GraphExecs&) = delete;
  GraphExecs& operator=(const GraphExecs&) = delete;

  // Sets the work of `node` in later launches of the executable.
  void set(CUgraphExec exec, CUgraphNode node, OperationPtr operation);
  // The driver has set one of the two nodes of `node` and refused the other with `result`. Launches
  // then return `result` until the node is set or the executable is updated.
  void set_half(CUgraphExec exec, CUgraphNode node, OperationPtr operation, int result);
  // The memory of `node` if it has `byte_count` bytes. Launches of one executable run one after the
  // other, so they may share it.
  std::shared_ptr<GraphHosts::Shadow> shadow_of(CUgraphExec exec, CUgraphNode node,
                                                std::size_t byte_count) const;

  // Replaces the driver's function. `call` is the launching call. Only from its handler.
  CUresult launch(Call& call, CUgraphExec exec, CUstream stream);
  CUresult destroy(CUgraphExec exec);
  // The executable was updated: all of its work is the graph's now.
  void forget(CUgraphExec exec);

 private:
  struct Node {
    OperationPtr operation;
    OperationPtr half;  // The driver's node uses its memory.
    int failure = 0;    // From set_half().
  };
  using Share = std::vector<OperationPtr>;
  using SharePtr = std::shared_ptr<const Share>;
  struct Exec {
    std::map<CUgraphNode, Node> nodes;
    SharePtr share;  // Of each launch. nullptr: it is made at the next launch.
  };

  Exec take(CUgraphExec exec);
  int share_of(CUgraphExec exec, SharePtr* share);
  int give_to_capture(CUstream stream, const Share& share) const;
  void over(std::uint64_t launch);

  const CudaDriver& driver_;
  mutable std::mutex mutex_;  // Guards all below. Operations never end under it.
  std::unordered_map<CUgraphExec, Exec> execs_;
  // Launches that have not ended, and those with an end that the driver does not report any more.
  std::unordered_map<std::uint64_t, SharePtr> launches_;
  std::uint64_t last_launch_ = 0;
};

// The graph that `stream` is being captured into, and, if there is exactly one, the node that the
// next node will depend on. Returns 0 or the CUresult.
int look_at_capture(const CudaDriver& driver, CUstream stream, CUgraph* graph, CUgraphNode* last);

}  // namespace gpurun::server
