// GraphTopology: which nodes of the driver's graphs stand for one node of the program.
//
// A copy from or to the client's memory is two nodes here: a host node and the copy beside it. The
// program's handle stands for the later one (`exit`), so that what depends on it depends on both;
// the earlier one (`entry`) is hidden. The rows that show or change a graph's shape go through the
// functions below instead of the driver's own: same signatures, same results, one node.
//
// A copy inside a child graph shows both of its nodes: the driver makes that graph.
#pragma once

#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "driver_abi/cuda_abi.h"
#include "server/driver/cuda_driver.h"
#include "server/handlers/graph_execs.h"
#include "server/worker/call.h"

namespace gpurun::server {

// Any thread.
class GraphTopology {
 public:
  // A node with work in the client.
  struct HostNode {
    CUgraph graph = nullptr;
    CUgraphNode entry = nullptr;  // The same as `exit` for a function.
    CUgraphNode exit = nullptr;
    protocol::GraphWork work = protocol::GraphWork::kFunction;
    CUuserObject object = nullptr;  // What ends its operation.
    bool copies = false;            // To the program a function that copies is a copy.
    CUgraphNode host() const { return work == protocol::GraphWork::kCopyIn ? entry : exit; }
    CUgraphNode copy() const { return work == protocol::GraphWork::kCopyIn ? exit : entry; }
  };

  explicit GraphTopology(const CudaDriver& driver) : driver_(driver), execs_(driver) {}
  GraphTopology(const GraphTopology&) = delete;
  GraphTopology& operator=(const GraphTopology&) = delete;

  void add(const HostNode& node);
  std::optional<HostNode> find(CUgraphNode exit) const;
  // The program's node: itself, or the one that a hidden one belongs to.
  CUgraphNode shown(CUgraphNode node) const;
  // Where what comes before a node is attached.
  CUgraphNode entry_of(CUgraphNode node) const;
  bool has_host_nodes(CUgraph graph) const;

  GraphExecs& execs() { return execs_; }

  // The functions that take the driver's place, by opcode; nullptr: the driver's own serves.
  static void* substitute(std::uint16_t opcode);
  // While one of them is called on this thread, by the handler of `call`.
  class Scope {
   public:
    Scope(GraphTopology& topology, Call& call);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
  };

 private:
  friend struct TopologyCalls;
  std::vector<HostNode> nodes_of(CUgraph graph) const;
  void forget(CUgraphNode exit);

  const CudaDriver& driver_;
  GraphExecs execs_;
  mutable std::mutex mutex_;                             // Guards all below.
  std::unordered_map<CUgraphNode, HostNode> nodes_;      // By exit.
  std::unordered_map<CUgraphNode, CUgraphNode> hidden_;  // Entry to exit.
};

}  // namespace gpurun::server
