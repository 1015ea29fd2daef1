// Nodes and edges.
#include "emulated/objects/graph.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <unordered_map>

namespace gpurun::emulated {
namespace {

using Position = std::unordered_map<const GraphNode*, std::size_t>;

Position positions(const std::vector<GraphNodePtr>& nodes) {
  Position at;
  for (std::size_t i = 0; i < nodes.size(); ++i) at[nodes[i].get()] = i;
  return at;
}

bool same_data(const CUgraphEdgeData& one, const CUgraphEdgeData& other) {
  return std::memcmp(&one, &other, sizeof one) == 0;
}

}  // namespace

Graph::~Graph() {
  for (const GraphNodePtr& node : nodes_) {
    handles().drop(node->handle());
    node->dependencies_.clear();  // Edges in a circle would keep its nodes for ever.
  }
}

GraphNodePtr Graph::add(OperationPtr operation, const std::vector<GraphNodePtr>& dependencies,
                        std::uint64_t original, std::span<const CUgraphEdgeData> data) {
  auto node =
      handles().add(std::make_shared<GraphNode>(weak_from_this(), std::move(operation), original));
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < dependencies.size(); ++i) {
    node->dependencies_.push_back({dependencies[i], i < data.size() ? data[i] : CUgraphEdgeData{}});
  }
  nodes_.push_back(node);
  return node;
}

std::vector<GraphNodePtr> Graph::nodes() const {
  const std::lock_guard lock(mutex_);
  return nodes_;
}

std::vector<GraphNodePtr> Graph::dependencies(const GraphNode& node) const {
  std::vector<GraphNodePtr> found;
  const std::lock_guard lock(mutex_);
  for (const GraphEdge& edge : node.dependencies_) found.push_back(edge.node);
  return found;
}

std::vector<GraphEdge> Graph::edges_to(const GraphNode& node) const {
  const std::lock_guard lock(mutex_);
  return node.dependencies_;
}

std::vector<GraphEdge> Graph::edges_from(const GraphNode& node) const {
  const std::lock_guard lock(mutex_);
  std::vector<GraphEdge> found;
  for (const GraphNodePtr& other : nodes_) {
    for (const GraphEdge& edge : other->dependencies_) {
      if (edge.node.get() == &node) found.push_back({other, edge.data});
    }
  }
  return found;
}

bool Graph::add_edge(const GraphNodePtr& from, const GraphNodePtr& to,
                     const CUgraphEdgeData& data) {
  if (!holds(*from) || !holds(*to) || from == to) return false;
  const std::lock_guard lock(mutex_);
  const auto& edges = to->dependencies_;
  if (std::any_of(edges.begin(), edges.end(),
                  [&from](const GraphEdge& edge) { return edge.node == from; })) {
    return false;
  }
  to->dependencies_.push_back({from, data});
  return true;
}

bool Graph::remove_edge(const GraphNodePtr& from, const GraphNodePtr& to,
                        const CUgraphEdgeData& data) {
  if (!holds(*from) || !holds(*to)) return false;
  const std::lock_guard lock(mutex_);
  return std::erase_if(to->dependencies_, [&](const GraphEdge& edge) {
           return edge.node == from && same_data(edge.data, data);
         }) != 0;
}

bool Graph::remove(const GraphNodePtr& node) {
  if (!holds(*node)) return false;
  handles().drop(node->handle());
  const std::lock_guard lock(mutex_);
  for (const GraphNodePtr& other : nodes_) {
    std::erase_if(other->dependencies_,
                  [&node](const GraphEdge& edge) { return edge.node == node; });
  }
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
    for (const GraphEdge& edge : nodes_[i]->dependencies_) {
      behind[at.at(edge.node.get())].push_back(i);
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

GraphNodePtr Graph::in_cycle() const {
  GraphNodePtr found = in_own_cycle();
  const std::vector<GraphNodePtr> all = nodes();
  for (std::size_t i = 0; i < all.size() && found == nullptr; ++i) {
    for (const GraphPtr& inner : all[i]->operation()->inner_graphs()) {
      if (found == nullptr) found = inner->in_cycle();
    }
  }
  return found;
}

GraphNodePtr Graph::in_own_cycle() const {
  const std::lock_guard lock(mutex_);
  std::vector<GraphNodePtr> left = nodes_;
  const auto is_left = [&left](const GraphEdge& edge) {
    return std::find(left.begin(), left.end(), edge.node) != left.end();
  };
  // A node without a dependency that is left is in no cycle.
  const auto waits = [&is_left](const GraphNodePtr& node) {
    return std::any_of(node->dependencies_.begin(), node->dependencies_.end(), is_left);
  };
  for (std::size_t before = left.size() + 1; left.size() < before;) {
    before = left.size();
    std::vector<GraphNodePtr> kept;
    std::copy_if(left.begin(), left.end(), std::back_inserter(kept), waits);
    left = std::move(kept);
  }
  if (left.empty()) return nullptr;
  // Each step goes to a dependency that is left, so at the latest the last is in a cycle.
  GraphNodePtr at = left.front();
  for (std::size_t step = 0; step < left.size(); ++step) {
    const auto& before = at->dependencies_;
    at = std::find_if(before.begin(), before.end(), is_left)->node;
  }
  return at;
}

GraphPtr Graph::clone() const {
  auto copy = std::make_shared<Graph>();
  const std::lock_guard lock(mutex_);
  std::unordered_map<const GraphNode*, GraphNodePtr> made;
  for (const GraphNodePtr& node : nodes_) {
    OperationPtr operation = node->operation();
    if (auto other = operation->for_clone(); other != nullptr) operation = std::move(other);
    made[node.get()] = copy->add(std::move(operation), {}, node->handle());
    made[node.get()]->set_context(node->context());
  }
  for (const GraphNodePtr& node : nodes_) {
    for (const GraphEdge& edge : node->dependencies_) {
      made[node.get()]->dependencies_.push_back({made[edge.node.get()], edge.data});
    }
  }
  copy->kept_ = kept_;
  return copy;
}

bool Graph::contains(const Graph& other) const {
  if (this == &other) return true;
  for (const GraphNodePtr& node : nodes()) {
    for (const GraphPtr& inner : node->operation()->inner_graphs()) {
      if (inner->contains(other)) return true;
    }
  }
  return false;
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
