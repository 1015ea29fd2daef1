// Graph: operations and the order between them (CUgraph, CUgraphNode).
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "emulated/objects/handle_table.h"
#include "emulated/objects/operation.h"

namespace gpurun::emulated {

class Graph;
class GraphNode;
using GraphPtr = std::shared_ptr<Graph>;
using GraphNodePtr = std::shared_ptr<GraphNode>;

// A dependency as one of its two nodes sees it. The data changes no order here: every dependency is
// a full one. Queries return the data.
struct GraphEdge {
  GraphNodePtr node;  // At the other end.
  CUgraphEdgeData data{};
};

// Any thread. Lives as long as its graph, or as a reference to it.
class GraphNode final : public Object {
 public:
  static constexpr ObjectKind kKind = ObjectKind::kGraphNode;
  GraphNode(std::weak_ptr<Graph> graph, OperationPtr operation, std::uint64_t original)
      : Object(kKind),
        graph_(std::move(graph)),
        original_(original),
        operation_(std::move(operation)) {}

  // nullptr: destroyed.
  GraphPtr graph() const { return graph_.lock(); }
  // Handle of the node that this one was cloned from. 0: it is not a clone.
  std::uint64_t original() const { return original_; }
  OperationPtr operation() const {
    const std::lock_guard lock(mutex_);
    return operation_;
  }
  void set_operation(OperationPtr operation) {
    const std::lock_guard lock(mutex_);
    operation_.swap(operation);
  }
  // The handle of the context in which a copy, a fill or memory operations run. 0: not known.
  std::uint64_t context() const { return context_.load(); }
  void set_context(std::uint64_t handle) { context_.store(handle); }

 private:
  friend class Graph;
  const std::weak_ptr<Graph> graph_;
  const std::uint64_t original_;
  std::atomic<std::uint64_t> context_{0};
  mutable std::mutex mutex_;
  OperationPtr operation_;
  std::vector<GraphEdge> dependencies_;  // Guarded by the graph.
};

// Any thread.
class Graph final : public Object, public std::enable_shared_from_this<Graph> {
 public:
  static constexpr ObjectKind kKind = ObjectKind::kGraph;
  Graph() : Object(kKind) {}
  ~Graph() override;

  // Adds a new node with a handle of its own. `original`: see GraphNode. `data`: of each
  // dependency, or empty.
  GraphNodePtr add(OperationPtr operation, const std::vector<GraphNodePtr>& dependencies,
                   std::uint64_t original = 0, std::span<const CUgraphEdgeData> data = {});
  // In order of addition.
  std::vector<GraphNodePtr> nodes() const;
  std::vector<GraphNodePtr> dependencies(const GraphNode& node) const;
  // The edges that end at the node, and those that begin there.
  std::vector<GraphEdge> edges_to(const GraphNode& node) const;
  std::vector<GraphEdge> edges_from(const GraphNode& node) const;
  // False, and nothing is done: a node is not of this graph, or both are the same. Also when the
  // edge exists (add_edge), or no edge with that data exists (remove_edge).
  bool add_edge(const GraphNodePtr& from, const GraphNodePtr& to, const CUgraphEdgeData& data);
  bool remove_edge(const GraphNodePtr& from, const GraphNodePtr& to, const CUgraphEdgeData& data);
  // False: not of this graph.
  bool remove(const GraphNodePtr& node);

  // The nodes, dependencies before dependents. Empty when there is a cycle.
  std::vector<GraphNodePtr> in_order() const;

  // A node of a cycle in the graph or in one inside its nodes. nullptr: there is no cycle.
  GraphNodePtr in_cycle() const;

  GraphPtr clone() const;

  // A graph inside a node belongs to that node. False: a node has it already.
  bool give_to_node() { return !in_node_.exchange(true); }
  // The program has moved it into a node (cuda.h, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE).
  bool moved() const { return moved_.load(); }
  void set_moved() { moved_.store(true); }
  // Whether `other` is this graph or inside one of its nodes, at any depth.
  bool contains(const Graph& other) const;

  // Keeps `thing` alive as long as this graph, its clones and their executables live. give_up()
  // finds it by `key`, unless that is nullptr.
  void keep(std::shared_ptr<void> thing, const void* key = nullptr);
  // Removes one thing with that key and returns it. nullptr: no such thing.
  std::shared_ptr<void> give_up(const void* key);
  std::vector<std::shared_ptr<void>> kept() const;

 private:
  GraphNodePtr in_own_cycle() const;
  bool holds(const GraphNode& node) const { return node.graph_.lock().get() == this; }

  std::atomic<bool> in_node_{false};
  std::atomic<bool> moved_{false};
  mutable std::mutex mutex_;
  std::vector<GraphNodePtr> nodes_;
  std::vector<std::pair<std::shared_ptr<void>, const void*>> kept_;
};

}  // namespace gpurun::emulated
