// Operation: one piece of work that a stream executes in order: a copy, a launch, an event. The
// same objects are the nodes of graphs, so they are immutable once issued.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "driver_abi/cuda_abi.h"

namespace gpurun::emulated {

class Context;
class Graph;

class Operation {
 public:
  virtual ~Operation() = default;

  // Does the work and returns when it is complete, on a thread that may block. A failure becomes
  // the context's sticky error.
  virtual CUresult run(Context& context) = 0;

  // Whether it also runs after the context has failed. Events must complete, and memory must be
  // freed.
  virtual bool runs_after_failure() const { return false; }

  // Whether other threads may see its effect shortly before it returns. When they see that an event
  // is done, the stream must already have reached it.
  virtual bool is_mark() const { return false; }
  // Whether it writes pageable memory, which no CUDA function knows.
  virtual bool writes_pageable() const { return false; }

  // Its type as a node of a graph.
  virtual CUgraphNodeType graph_node_type() const { return CU_GRAPH_NODE_TYPE_EMPTY; }
  // The operation that one launch of a graph runs instead. nullptr: the operation itself.
  virtual std::shared_ptr<Operation> for_launch() const { return nullptr; }
  // The operation that a clone of the graph has instead, and the one that an executable has. The
  // program may change a graph inside a node, and neither sees that. nullptr: the operation itself.
  virtual std::shared_ptr<Operation> for_clone() const { return nullptr; }
  virtual std::shared_ptr<Operation> for_executable() const { return nullptr; }
  // The graphs that it runs as a node of a graph.
  virtual std::vector<std::shared_ptr<Graph>> inner_graphs() const { return {}; }
  // A launch of the graph begins to run.
  virtual void begin_launch() const {}
};

using OperationPtr = std::shared_ptr<Operation>;

// Work given as a function, for operations that no graph inspects.
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
