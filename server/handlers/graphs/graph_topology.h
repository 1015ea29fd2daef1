// GraphTopology: the nodes of the driver's graphs that represent one node of the program.
//
// A copy from or to the client's memory has two nodes here: a host node and the copy beside it. The
// program's handle is that of the later one (`exit`), so that its dependents depend on both. The
// earlier one (`entry`) is hidden. The functions below replace the driver's for the rows that show
// or change the shape of a graph. They have the same signatures and results, and show one node.
//
// A copy inside a child graph shows both of its nodes, because the driver makes that graph.
#pragma once

#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "driver_abi/cuda_abi.h"
#include "server/driver/cuda_driver.h"
#include "server/handlers/graphs/graph_execs.h"
#include "server/worker/execution/call.h"

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
    CUuserObject object = nullptr;  // Its end ends the operation.
    bool copies = false;            // For the program, a function that copies is a copy.
    CUcontext context = nullptr;    // Of a copy.
    CUgraphNode host() const { return work == protocol::GraphWork::kCopyIn ? entry : exit; }
    CUgraphNode copy() const { return work == protocol::GraphWork::kCopyIn ? exit : entry; }
  };

  explicit GraphTopology(const CudaDriver& driver) : driver_(driver), execs_(driver) {}
  GraphTopology(const GraphTopology&) = delete;
  GraphTopology& operator=(const GraphTopology&) = delete;

  void add(const HostNode& node);
  std::optional<HostNode> find(CUgraphNode exit) const;
  // The program's node: `node` itself, or the one that a hidden `node` belongs to.
  CUgraphNode shown(CUgraphNode node) const;
  // The node to which the dependencies of `node` are attached.
  CUgraphNode entry_of(CUgraphNode node) const;
  bool has_host_nodes(CUgraph graph) const;

  GraphExecs& execs() { return execs_; }

  // The functions that replace the driver's, by opcode. nullptr: the driver's own function serves.
  static void* substitute(std::uint16_t opcode);
  // Exists while the handler of `call` calls one of them on this thread.
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
