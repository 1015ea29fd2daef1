// Graph: operations and the order between them.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "server/emulated/objects/handle_table.h"
#include "server/emulated/objects/operation.h"

namespace gpurun::emulated {

// Immutable once added to its graph.
class GraphNode final : public Object {
 public:
  static constexpr ObjectKind kKind = ObjectKind::kGraphNode;
  GraphNode(OperationPtr work, std::vector<std::shared_ptr<GraphNode>> behind)
      : Object(kKind), operation(std::move(work)), dependencies(std::move(behind)) {}

  const OperationPtr operation;
  const std::vector<std::shared_ptr<GraphNode>> dependencies;
};

// Any thread.
class Graph final : public Object {
 public:
  static constexpr ObjectKind kKind = ObjectKind::kGraph;
  Graph() : Object(kKind) {}

  std::shared_ptr<GraphNode> add(OperationPtr operation,
                                 std::vector<std::shared_ptr<GraphNode>> dependencies) {
    auto node = std::make_shared<GraphNode>(std::move(operation), std::move(dependencies));
    const std::lock_guard lock(mutex_);
    nodes_.push_back(node);
    return node;
  }
  // In order of addition, which is an order in which they may run.
  std::vector<std::shared_ptr<GraphNode>> nodes() const {
    const std::lock_guard lock(mutex_);
    return nodes_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<GraphNode>> nodes_;
};

}  // namespace gpurun::emulated
