// Conditional: a value that kernels set (cudaGraphSetConditional), and the node of a graph that
// runs its bodies by that value (cuda.h, CUDA_CONDITIONAL_NODE_PARAMS).
#pragma once

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "emulated/objects/graph.h"
#include "emulated/objects/handle_table.h"
#include "emulated/objects/operation.h"

namespace gpurun::emulated {

// Any thread. The handle is a number that kernels get as an argument. It ends with the graph and
// the executables of it.
class Conditional final : public Object {
 public:
  static constexpr ObjectKind kKind = ObjectKind::kConditional;
  // `resets`: each launch of the graph begins with `initial`.
  Conditional(unsigned initial, bool resets)
      : Object(kKind), initial_(initial), resets_(resets), value_(initial) {}

  void set(unsigned value) { value_.store(value, std::memory_order_release); }
  unsigned value() const { return value_.load(std::memory_order_acquire); }
  void begin_launch() {
    if (resets_) set(initial_);
  }
  // False: a node has it already.
  bool take() { return !taken_.exchange(true); }

 private:
  const unsigned initial_;
  const bool resets_;
  std::atomic<unsigned> value_;
  std::atomic<bool> taken_{false};
};

class ConditionalOperation final : public Operation {
 public:
  // Makes `count` bodies: graphs with handles, which end with this object. The program adds nodes
  // to them.
  ConditionalOperation(std::shared_ptr<Conditional> conditional, CUgraphConditionalNodeType type,
                       std::size_t count);
  ~ConditionalOperation() override;
  // Runs the bodies as they are at that time. The watchdog counts the time of a loop.
  CUresult run(Context& context) override;
  CUgraphNodeType graph_node_type() const override { return CU_GRAPH_NODE_TYPE_CONDITIONAL; }
  void begin_launch() const override;

  const Conditional& conditional() const { return *conditional_; }
  CUgraphConditionalNodeType type() const { return type_; }
  // The list lives as long as the node (cuda.h).
  CUgraph* body_handles() { return body_handles_.data(); }
  std::vector<GraphPtr> inner_graphs() const override { return bodies_; }

 private:
  CUresult run_body(Context& context, std::size_t index) const;
  CUresult repeat(Context& context) const;

  const std::shared_ptr<Conditional> conditional_;
  const CUgraphConditionalNodeType type_;
  std::vector<GraphPtr> bodies_;
  std::vector<CUgraph> body_handles_;
};

}  // namespace gpurun::emulated
