// Driver calls on a helper thread, for callers that must not call the driver or must not block.
// These are mostly threads of the driver.
#include <memory>
#include <utility>

#include "server/worker/execution/executor_state.h"
#include "server/worker/execution/thread_context.h"

namespace gpurun::server {

bool Executor::call_driver(void* context, DriverTask task) {
  state_->begin_waiting();
  const Status begun = state_->pool->run([state = state_.get(), context, task = std::move(task)] {
    task(state->options.driver, enter_context(state->options.driver, state->id, context));
    forget_thread_context();
    state->end_waiting();
  });
  if (!begun.ok()) state_->end_waiting();
  return begun.ok();
}

std::future<void> Executor::settle_aside(void* context) {
  if (state_->bulk == nullptr || !state_->bulk->out().numbering_due()) return {};
  const auto settled = std::make_shared<std::promise<void>>();
  std::future<void> future = settled->get_future();
  const auto task = [state = state_.get(), settled](const DriverFunctions&, int) {
    state->completions.settle();
    state->replies.run_due();
    settled->set_value();
  };
  return call_driver(context, task) ? std::move(future) : std::future<void>();
}

std::uint64_t Executor::copies_said() { return state_->replies.copies_said(); }

}  // namespace gpurun::server
