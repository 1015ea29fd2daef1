// Conditional nodes: which body runs, and how often.
#include "emulated/objects/conditional.h"

#include <chrono>
#include <cstdint>

#include "base/log.h"
#include "emulated/objects/context.h"
#include "emulated/objects/graph_exec.h"
#include "emulated/settings.h"

namespace gpurun::emulated {
namespace {

// The engine's watchdog measures kernels. A loop may run none, or only short ones.
class LoopWatch {
 public:
  // Reports a long loop after each period of the watchdog. False: the watchdog ends the loop.
  bool may_go_on() {
    ++turns_;
    if (period_.count() == 0) return true;
    const auto passed = std::chrono::steady_clock::now() - started_;
    if (passed < period_ * (reports_ + 1)) return true;
    reports_ = passed / period_;
    GPURUN_LOG(kWarning, "a WHILE node of a graph has been running for %.1f s: %llu turns%s",
               std::chrono::duration<double>(passed).count(),
               static_cast<unsigned long long>(turns_),
               settings().watchdog_kills ? "; it is ended" : "");
    return !settings().watchdog_kills;
  }

 private:
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  const std::chrono::seconds period_{settings().watchdog_s};
  std::int64_t reports_ = 0;
  std::uint64_t turns_ = 0;
};

}  // namespace

ConditionalOperation::ConditionalOperation(std::shared_ptr<Conditional> conditional,
                                           CUgraphConditionalNodeType type, std::size_t count)
    : conditional_(std::move(conditional)), type_(type) {
  for (std::size_t i = 0; i < count; ++i) {
    bodies_.push_back(handles().add(std::make_shared<Graph>()));
    (void)bodies_.back()->give_to_node();
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
  return repeat(context);
}

CUresult ConditionalOperation::repeat(Context& context) const {
  LoopWatch watch;
  while (conditional_->value() != 0) {
    const CUresult result = run_body(context, 0);
    if (result != CUDA_SUCCESS || context.sticky_error() != CUDA_SUCCESS) return result;
    if (!watch.may_go_on()) return CUDA_ERROR_LAUNCH_TIMEOUT;
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
