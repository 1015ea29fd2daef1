// Operation: one piece of work that a stream executes in its turn: a copy, a launch, an event.
// The same objects are the nodes of graphs, so they are immutable once issued.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "driver_abi/cuda_abi.h"

namespace gpurun::emulated {

class Context;

class Operation {
 public:
  virtual ~Operation() = default;

  // Does the work and returns when it is complete; on a thread that may block. A failure becomes
  // the context's sticky error.
  virtual CUresult run(Context& context) = 0;

  // Whether it also runs after the context failed (events must complete, memory must be freed).
  virtual bool runs_after_failure() const { return false; }

  // Others see what it does before it has returned, which it soon does: an event that is done must
  // find the stream at least as far.
  virtual bool is_mark() const { return false; }
  // Whether it writes memory that no CUDA function knows: pageable memory.
  virtual bool writes_pageable() const { return false; }

  // What it is as a node of a graph.
  virtual CUgraphNodeType graph_node_type() const { return CU_GRAPH_NODE_TYPE_EMPTY; }
  // What one launch of a graph runs in its place; nullptr: the operation itself.
  virtual std::shared_ptr<Operation> for_launch() const { return nullptr; }
};

using OperationPtr = std::shared_ptr<Operation>;

// Work given as a function, for what no graph needs to look into.
class FunctionOperation final : public Operation {
 public:
  using Body = std::function<CUresult()>;
  explicit FunctionOperation(Body body, bool runs_after_failure = false)
      : body_(std::move(body)), runs_after_failure_(runs_after_failure) {}
  CUresult run(Context&) override { return body_(); }
  bool runs_after_failure() const override { return runs_after_failure_; }

 private:
  Body body_;
  bool runs_after_failure_;
};

}  // namespace gpurun::emulated
