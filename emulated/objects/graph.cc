// Nodes and edges.
#include "emulated/objects/graph.h"

#include <algorithm>
#include <unordered_map>

namespace gpurun::emulated {
namespace {

using Position = std::unordered_map<const GraphNode*, std::size_t>;

Position positions(const std::vector<GraphNodePtr>& nodes) {
  Position at;
  for (std::size_t i = 0; i < nodes.size(); ++i) at[nodes[i].get()] = i;
  return at;
}

bool contains(const std::vector<GraphNodePtr>& nodes, const GraphNodePtr& node) {
  return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
}

}  // namespace

Graph::~Graph() {
  for (const GraphNodePtr& node : nodes_) handles().drop(node->handle());
}

GraphNodePtr Graph::add(OperationPtr operation, std::vector<GraphNodePtr> dependencies,
                        std::uint64_t original) {
  auto node =
      handles().add(std::make_shared<GraphNode>(weak_from_this(), std::move(operation), original));
  const std::lock_guard lock(mutex_);
  node->dependencies_ = std::move(dependencies);
  nodes_.push_back(node);
  return node;
}

std::vector<GraphNodePtr> Graph::nodes() const {
  const std::lock_guard lock(mutex_);
  return nodes_;
}

std::vector<GraphNodePtr> Graph::dependencies(const GraphNode& node) const {
  const std::lock_guard lock(mutex_);
  return node.dependencies_;
}

std::vector<GraphNodePtr> Graph::dependents(const GraphNode& node) const {
  const std::lock_guard lock(mutex_);
  std::vector<GraphNodePtr> found;
  for (const GraphNodePtr& other : nodes_) {
    for (const GraphNodePtr& before : other->dependencies_) {
      if (before.get() == &node) found.push_back(other);
    }
  }
  return found;
}

bool Graph::add_edge(const GraphNodePtr& from, const GraphNodePtr& to) {
  if (!holds(*from) || !holds(*to) || from == to) return false;
  const std::lock_guard lock(mutex_);
  if (contains(to->dependencies_, from)) return false;
  to->dependencies_.push_back(from);
  return true;
}

bool Graph::remove_edge(const GraphNodePtr& from, const GraphNodePtr& to) {
  if (!holds(*from) || !holds(*to)) return false;
  const std::lock_guard lock(mutex_);
  return std::erase(to->dependencies_, from) != 0;
}

bool Graph::remove(const GraphNodePtr& node) {
  if (!holds(*node)) return false;
  handles().drop(node->handle());
  const std::lock_guard lock(mutex_);
  for (const GraphNodePtr& other : nodes_) std::erase(other->dependencies_, node);
  node->dependencies_.clear();
  return std::erase(nodes_, node) != 0;
}

std::vector<GraphNodePtr> Graph::in_order() const {
  const std::lock_guard lock(mutex_);
  const Position at = positions(nodes_);
  std::vector<std::size_t> missing(nodes_.size());
  std::vector<std::vector<std::size_t>> behind(nodes_.size());
  std::vector<std::size_t> ready;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    missing[i] = nodes_[i]->dependencies_.size();
    if (missing[i] == 0) ready.push_back(i);
    for (const GraphNodePtr& before : nodes_[i]->dependencies_) {
      behind[at.at(before.get())].push_back(i);
    }
  }
  std::vector<GraphNodePtr> order;
  for (std::size_t next = 0; next < ready.size(); ++next) {
    order.push_back(nodes_[ready[next]]);
    for (const std::size_t i : behind[ready[next]]) {
      if (--missing[i] == 0) ready.push_back(i);
    }
  }
  if (order.size() != nodes_.size()) order.clear();
  return order;
}

GraphPtr Graph::clone() const {
  auto copy = std::make_shared<Graph>();
  const std::lock_guard lock(mutex_);
  std::unordered_map<const GraphNode*, GraphNodePtr> made;
  for (const GraphNodePtr& node : nodes_) {
    made[node.get()] = copy->add(node->operation(), {}, node->handle());
  }
  for (const GraphNodePtr& node : nodes_) {
    for (const GraphNodePtr& before : node->dependencies_) {
      made[node.get()]->dependencies_.push_back(made[before.get()]);
    }
  }
  copy->kept_ = kept_;
  return copy;
}

void Graph::keep(std::shared_ptr<void> thing, const void* key) {
  const std::lock_guard lock(mutex_);
  kept_.emplace_back(std::move(thing), key);
}

std::shared_ptr<void> Graph::give_up(const void* key) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(kept_.begin(), kept_.end(),
                                  [key](const auto& each) { return each.second == key; });
  if (found == kept_.end()) return nullptr;
  std::shared_ptr<void> thing = std::move(found->first);
  kept_.erase(found);
  return thing;
}

std::vector<std::shared_ptr<void>> Graph::kept() const {
  std::vector<std::shared_ptr<void>> things;
  const std::lock_guard lock(mutex_);
  for (const auto& each : kept_) things.push_back(each.first);
  return things;
}

}  // namespace gpurun::emulated
