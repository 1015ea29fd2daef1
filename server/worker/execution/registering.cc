// Registration of staging memory with the driver, on helper threads.
#include "base/log.h"
#include "server/worker/execution/executor_state.h"
#include "server/worker/execution/thread_context.h"

namespace gpurun::server {

// On a helper, so that the role is not held for a driver call of a millisecond.
void ExecutorState::register_ahead(const Call& call, Staging& staging, std::uint64_t bytes) {
  if (options.driver.cuMemHostRegister == nullptr) return staging.settle_all();
  void* const context = call.driver_context_;
  if (!staging.begin_registering(context, bytes > Staging::kPartBytes)) return;
  const auto work = [this, &staging, context] { register_parts(staging, context); };
  if (!pool->run(work).ok()) work();
}

void ExecutorState::register_parts(Staging& staging, void* context) {
  const int entered = enter_context(options.driver, id, context);
  Staging::Went went = Staging::Went::kOn;
  while (went == Staging::Went::kOn) {
    int refused = 0;
    went = staging.register_next(options.driver, entered, &refused);
    if (refused != 0 && !told_of_refusal.exchange(true)) {
      GPURUN_LOG(kWarning,
                 "the driver does not register memory for copies (error %d): they are slower",
                 refused);
    }
    executor.wake();
  }
}

void Executor::register_ahead(const Call& call, Staging& staging, std::uint64_t bytes) {
  state_->register_ahead(call, staging, bytes);
}
bool Executor::may_use(const Call& call, Staging& staging, const std::byte* slot,
                       std::uint64_t bytes) {
  state_->register_ahead(call, staging, bytes);
  return staging.settled(slot);
}

}  // namespace gpurun::server
