// Conditional nodes: which body runs, and how often.
#include "emulated/objects/conditional.h"

#include "emulated/objects/context.h"
#include "emulated/objects/graph_exec.h"

namespace gpurun::emulated {

ConditionalOperation::ConditionalOperation(std::shared_ptr<Conditional> conditional,
                                           CUgraphConditionalNodeType type, std::size_t count)
    : conditional_(std::move(conditional)), type_(type) {
  for (std::size_t i = 0; i < count; ++i) {
    bodies_.push_back(handles().add(std::make_shared<Graph>()));
    body_handles_.push_back(bodies_.back()->as<CUgraph>());
  }
}

ConditionalOperation::~ConditionalOperation() {
  for (const GraphPtr& body : bodies_) handles().drop(body->handle());
}

CUresult ConditionalOperation::run_body(Context& context, std::size_t index) const {
  return launch_of(bodies_[index])->run(context);
}

CUresult ConditionalOperation::run(Context& context) {
  const unsigned value = conditional_->value();
  switch (type_) {
    case CU_GRAPH_COND_TYPE_IF:
      if (value != 0) return run_body(context, 0);
      return bodies_.size() > 1 ? run_body(context, 1) : CUDA_SUCCESS;
    case CU_GRAPH_COND_TYPE_SWITCH:
      return value < bodies_.size() ? run_body(context, value) : CUDA_SUCCESS;
    case CU_GRAPH_COND_TYPE_WHILE:
      break;
  }
  while (conditional_->value() != 0) {
    const CUresult result = run_body(context, 0);
    if (result != CUDA_SUCCESS || context.sticky_error() != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

// "Applied at the beginning of each graph execution" (cuda.h, cuGraphConditionalHandleCreate).
void ConditionalOperation::begin_launch() const {
  conditional_->begin_launch();
  for (const GraphPtr& body : bodies_) {
    for (const GraphNodePtr& node : body->nodes()) node->operation()->begin_launch();
  }
}

}  // namespace gpurun::emulated
