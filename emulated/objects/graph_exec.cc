// Execution of graphs. Branches run one after the other, because CUDA promises no more.
#include "emulated/objects/graph_exec.h"

#include <algorithm>
#include <unordered_map>

#include "emulated/objects/context.h"

namespace gpurun::emulated {
namespace {

// The operation that a launch runs in its place.
OperationPtr current(const OperationPtr& operation) {
  auto made = operation->for_launch();
  return made != nullptr ? made : operation;
}

// One launch of a graph, with its operations as they were at the launch. A captured launch is a
// node of another graph, and runs when that is launched.
class GraphLaunch final : public Operation {
 public:
  GraphLaunch(std::vector<OperationPtr> operations, std::shared_ptr<void> owner,
              std::mutex* running)
      : operations_(std::move(operations)), owner_(std::move(owner)), running_(running) {}

  CUresult run(Context& context) override {
    std::unique_lock<std::mutex> turn;
    if (running_ != nullptr) turn = std::unique_lock(*running_);
    CUresult first = CUDA_SUCCESS;
    if (running_ != nullptr) begin_launch();
    for (const OperationPtr& operation : operations_) {
      const bool failed = first != CUDA_SUCCESS || context.sticky_error() != CUDA_SUCCESS;
      if (failed && !operation->runs_after_failure()) continue;
      const CUresult result = operation->run(context);
      if (first == CUDA_SUCCESS) first = result;
    }
    return first;
  }
  // Events that the graph records must complete.
  bool runs_after_failure() const override { return true; }
  void begin_launch() const override {
    for (const OperationPtr& operation : operations_) operation->begin_launch();
  }
  bool writes_pageable() const override {
    return std::any_of(operations_.begin(), operations_.end(),
                       [](const OperationPtr& each) { return each->writes_pageable(); });
  }
  OperationPtr for_launch() const override {
    std::vector<OperationPtr> operations;
    for (const OperationPtr& each : operations_) operations.push_back(current(each));
    return std::make_shared<GraphLaunch>(std::move(operations), owner_, running_);
  }

 private:
  const std::vector<OperationPtr> operations_;
  const std::shared_ptr<void> owner_;
  std::mutex* const running_;
};

// The operation that an executable keeps in its place.
OperationPtr kept_by_executable(const OperationPtr& operation) {
  auto made = operation->for_executable();
  return made != nullptr ? made : operation;
}

// A child graph in an executable: its operations at the instantiation, and what it keeps alive.
class NestedGraph final : public Operation {
 public:
  NestedGraph(std::vector<OperationPtr> operations,
              std::shared_ptr<const std::vector<std::shared_ptr<void>>> kept)
      : operations_(std::move(operations)), kept_(std::move(kept)) {}
  CUresult run(Context& context) override { return for_launch()->run(context); }
  CUgraphNodeType graph_node_type() const override { return CU_GRAPH_NODE_TYPE_GRAPH; }
  OperationPtr for_launch() const override {
    std::vector<OperationPtr> operations;
    for (const OperationPtr& each : operations_) operations.push_back(current(each));
    return std::make_shared<GraphLaunch>(
        std::move(operations), std::const_pointer_cast<std::vector<std::shared_ptr<void>>>(kept_),
        nullptr);
  }

 private:
  const std::vector<OperationPtr> operations_;
  const std::shared_ptr<const std::vector<std::shared_ptr<void>>> kept_;
};

}  // namespace

OperationPtr GraphEventOperation::for_launch() const {
  if (!record_) {
    const OccurrencePtr last = event_->last();
    if (last == nullptr) return std::make_shared<EmptyOperation>();
    return std::make_shared<WaitOperation>(last);
  }
  OccurrencePtr occurrence = event_->begin();
  event_->set_last(occurrence);
  return std::make_shared<RecordOperation>(std::move(occurrence));
}

CUresult ChildGraphOperation::run(Context& context) { return for_launch()->run(context); }

OperationPtr ChildGraphOperation::for_launch() const { return launch_of(graph_); }

OperationPtr ChildGraphOperation::for_clone() const {
  return std::make_shared<ChildGraphOperation>(handles().add(graph_->clone()));
}

OperationPtr ChildGraphOperation::for_executable() const {
  std::vector<OperationPtr> operations;
  for (const GraphNodePtr& node : graph_->in_order()) {
    operations.push_back(kept_by_executable(node->operation()));
  }
  return std::make_shared<NestedGraph>(
      std::move(operations),
      std::make_shared<const std::vector<std::shared_ptr<void>>>(graph_->kept()));
}

OperationPtr launch_of(const GraphPtr& graph) {
  std::vector<OperationPtr> operations;
  for (const GraphNodePtr& node : graph->in_order()) {
    operations.push_back(current(node->operation()));
  }
  return std::make_shared<GraphLaunch>(std::move(operations), graph, nullptr);
}

bool is_acyclic(const Graph& graph) {
  const std::vector<GraphNodePtr> order = graph.in_order();
  if (order.empty() && !graph.nodes().empty()) return false;
  return std::all_of(order.begin(), order.end(), [](const GraphNodePtr& node) {
    const auto inner = node->operation()->inner_graphs();
    return std::all_of(inner.begin(), inner.end(),
                       [](const GraphPtr& each) { return is_acyclic(*each); });
  });
}

bool GraphExec::read(const Graph& graph, std::vector<Node>* nodes) {
  if (!is_acyclic(graph)) return false;
  const auto order = graph.in_order();
  std::unordered_map<const GraphNode*, std::size_t> at;
  for (const GraphNodePtr& node : order) {
    Node made;
    made.handle = node->handle();
    made.operation = kept_by_executable(node->operation());
    for (const GraphNodePtr& before : graph.dependencies(*node)) {
      const auto found = at.find(before.get());
      if (found == at.end()) return false;  // Changed meanwhile.
      made.dependencies.push_back(found->second);
    }
    std::sort(made.dependencies.begin(), made.dependencies.end());
    at[node.get()] = nodes->size();
    nodes->push_back(std::move(made));
  }
  return true;
}

std::shared_ptr<GraphExec> GraphExec::instantiate(const Graph& graph, std::uint64_t flags) {
  std::shared_ptr<GraphExec> made(new GraphExec(flags));
  if (!read(graph, &made->nodes_)) return nullptr;
  made->kept_ = std::make_shared<const std::vector<std::shared_ptr<void>>>(graph.kept());
  return made;
}

OperationPtr GraphExec::launch(bool captured) {
  std::vector<OperationPtr> operations;
  const std::lock_guard lock(mutex_);
  for (const Node& node : nodes_) {
    if (node.enabled) operations.push_back(captured ? node.operation : current(node.operation));
  }
  using Owner = std::pair<std::shared_ptr<GraphExec>, decltype(kept_)>;
  return std::make_shared<GraphLaunch>(
      std::move(operations), std::make_shared<Owner>(shared_from_this(), kept_), &running_);
}

GraphExec::Node* GraphExec::find(std::uint64_t handle) {
  const auto found = std::find_if(nodes_.begin(), nodes_.end(),
                                  [handle](const Node& node) { return node.handle == handle; });
  return found == nodes_.end() ? nullptr : &*found;
}

bool GraphExec::set_operation(std::uint64_t handle, OperationPtr operation) {
  const std::lock_guard lock(mutex_);
  Node* node = find(handle);
  if (node == nullptr || node->operation->graph_node_type() != operation->graph_node_type()) {
    return false;
  }
  node->operation = kept_by_executable(operation);
  return true;
}

// Only these kinds of node can be switched off (manual, cuGraphNodeSetEnabled).
bool GraphExec::set_enabled(std::uint64_t handle, bool enabled) {
  const std::lock_guard lock(mutex_);
  Node* node = find(handle);
  if (node == nullptr || node->operation->graph_node_type() > CU_GRAPH_NODE_TYPE_MEMSET) {
    return false;
  }
  node->enabled = enabled;
  return true;
}

bool GraphExec::get_enabled(std::uint64_t handle, bool* enabled) const {
  const std::lock_guard lock(mutex_);
  const Node* node = const_cast<GraphExec*>(this)->find(handle);
  if (node == nullptr) return false;
  *enabled = node->enabled;
  return true;
}

CUgraphExecUpdateResult GraphExec::update(const Graph& graph, GraphNodePtr* failed) {
  std::vector<Node> wanted;
  if (!read(graph, &wanted)) return CU_GRAPH_EXEC_UPDATE_ERROR;
  const std::lock_guard lock(mutex_);
  if (wanted.size() != nodes_.size()) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    *failed = handles().find<GraphNode>(wanted[i].handle);
    if (wanted[i].dependencies != nodes_[i].dependencies) {
      return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    }
    if (wanted[i].operation->graph_node_type() != nodes_[i].operation->graph_node_type()) {
      return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    }
  }
  failed->reset();
  // The handles stay those of the graph that was instantiated.
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    nodes_[i].operation = std::move(wanted[i].operation);
  }
  kept_ = std::make_shared<const std::vector<std::shared_ptr<void>>>(graph.kept());
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

}  // namespace gpurun::emulated
