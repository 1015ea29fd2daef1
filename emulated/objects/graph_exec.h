// GraphExec: a graph prepared for launches (CUgraphExec), and the operations that only graphs have.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "emulated/objects/event.h"
#include "emulated/objects/graph.h"

namespace gpurun::emulated {

class EmptyOperation final : public Operation {
 public:
  explicit EmptyOperation(CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY) : type_(type) {}
  CUresult run(Context&) override { return CUDA_SUCCESS; }
  CUgraphNodeType graph_node_type() const override { return type_; }

 private:
  const CUgraphNodeType type_;
};

// Records an event, or waits for it. Each launch of the graph makes a new occurrence.
class GraphEventOperation final : public Operation {
 public:
  GraphEventOperation(EventPtr event, bool record) : event_(std::move(event)), record_(record) {}
  CUresult run(Context&) override { return CUDA_SUCCESS; }
  CUgraphNodeType graph_node_type() const override {
    return record_ ? CU_GRAPH_NODE_TYPE_EVENT_RECORD : CU_GRAPH_NODE_TYPE_WAIT_EVENT;
  }
  OperationPtr for_launch() const override;
  const EventPtr& event() const { return event_; }

 private:
  const EventPtr event_;
  const bool record_;
};

// A graph as a node of another one.
class ChildGraphOperation final : public Operation {
 public:
  // `graph` has a handle, which ends with this object.
  explicit ChildGraphOperation(GraphPtr graph) : graph_(std::move(graph)) {
    (void)graph_->give_to_node();
  }
  ~ChildGraphOperation() override { handles().drop(graph_->handle()); }
  CUresult run(Context& context) override;
  CUgraphNodeType graph_node_type() const override { return CU_GRAPH_NODE_TYPE_GRAPH; }
  OperationPtr for_launch() const override;
  OperationPtr for_clone() const override;
  OperationPtr for_executable() const override;
  const GraphPtr& graph() const { return graph_; }
  std::vector<GraphPtr> inner_graphs() const override { return {graph_}; }

 private:
  const GraphPtr graph_;
};

// Whether neither the graph nor one inside its nodes has a cycle.
bool is_acyclic(const Graph& graph);

// All nodes of the graph as they are now, as one operation.
OperationPtr launch_of(const GraphPtr& graph);

// Any thread.
class GraphExec final : public Object, public std::enable_shared_from_this<GraphExec> {
 public:
  static constexpr ObjectKind kKind = ObjectKind::kGraphExec;
  // nullptr: the graph, or one inside its nodes, has a cycle.
  static std::shared_ptr<GraphExec> instantiate(const Graph& graph, std::uint64_t flags);

  std::uint64_t flags() const { return flags_; }
  // All nodes as one operation, in an order that respects dependencies. Launches of one executable
  // run one after the other. `captured`: the operation becomes a node, and resolves its nodes when
  // the capturing graph is launched.
  OperationPtr launch(bool captured);

  // False: no such node. set_operation() also fails for an operation of another type.
  bool set_operation(std::uint64_t node, OperationPtr operation);
  bool set_enabled(std::uint64_t node, bool enabled);
  bool get_enabled(std::uint64_t node, bool* enabled) const;
  // Takes the operations of a graph of the same shape, and what the graph keeps alive.
  CUgraphExecUpdateResult update(const Graph& graph, GraphNodePtr* failed);

 private:
  GraphExec(std::uint64_t flags) : Object(kKind), flags_(flags) {}
  struct Node {
    std::uint64_t handle;  // Of the graph's node.
    OperationPtr operation;
    std::vector<std::size_t> dependencies;
    bool enabled = true;
  };
  static bool read(const Graph& graph, std::vector<Node>* nodes);
  Node* find(std::uint64_t handle);

  const std::uint64_t flags_;
  mutable std::mutex mutex_;
  std::vector<Node> nodes_;  // In order.
  // What the graph that the operations came from keeps alive. Running launches keep theirs.
  std::shared_ptr<const std::vector<std::shared_ptr<void>>> kept_;
  std::mutex running_;  // Held by the launch that executes.
};

}  // namespace gpurun::emulated
