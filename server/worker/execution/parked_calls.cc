// ParkedCalls: each wait ends with the answer of its call.
#include "server/worker/execution/parked_calls.h"

#include <utility>

#include "server/driver/error_numbers.h"
#include "server/worker/execution/queued_calls.h"
#include "server/worker/execution/thread_context.h"

namespace gpurun::server {

void ParkedCalls::park(std::unique_ptr<Call> call, const CallOutcome& outcome) {
  std::shared_ptr<Call> shared = std::move(call);
  const auto wait = outcome.wait;
  const bool looked = outcome.ready != nullptr;
  const BriefSpin::Clock::time_point begin = BriefSpin::Clock::now();
  const Status started = parts_.pool.run([this, shared, wait, looked, begin] {
    const int result = parts_.runner.run_parked(*shared, wait);
    if (looked) parts_.poll.helper_waited(begin);
    forget_thread_context();
    parts_.replies.answer(*shared, result);
  });
  if (!started.ok()) parts_.replies.answer(*shared, kErrorOutOfMemory);
}

void ParkedCalls::go_on(std::unique_ptr<Call> call, const CallOutcome& outcome) {
  if (outcome.kind == CallOutcome::Kind::kParked) {
    if (outcome.ready == nullptr || !parts_.poll.until([&] { return outcome.ready(*call); })) {
      return park(std::move(call), outcome);
    }
    return parts_.replies.answer(*call, parts_.runner.run_rest(*call, outcome.wait));
  }
  answer_after_stream(std::move(call), outcome.wait);
}

void ParkedCalls::finish_awaited(std::unique_ptr<Call> call) {
  const CallOutcome outcome = parts_.runner.run(*call);
  switch (outcome.kind) {
    case CallOutcome::Kind::kDone:
      return parts_.replies.answer(*call, outcome.result);
    case CallOutcome::Kind::kHeld:
      // The call has no queue to hold it in.
      return parts_.replies.answer(*call, kErrorUnknown);
    case CallOutcome::Kind::kParked:
    case CallOutcome::Kind::kAfterStream:
      return go_on(std::move(call), outcome);
  }
}

void ParkedCalls::answer_after_stream(std::unique_ptr<Call> call, int (*wait)(Call&)) {
  const std::shared_ptr<Call> shared = std::move(call);
  const BriefSpin::Clock::time_point begin = BriefSpin::Clock::now();
  const auto end = [this, shared, wait, begin](int result) {
    parts_.poll.helper_waited(begin);
    parts_.replies.later([this, shared, wait, result] {
      const int own = wait(*shared);
      parts_.replies.answer(*shared, result != 0 ? result : own, true);
    });
  };
  const int result = parts_.completions.after(shared->driver_context(), shared->driver_stream(),
                                              end, Completions::NotifyMode::kAwaited);
  if (result != 0) end(result);
  parts_.replies.run_due();
}

void ParkedCalls::run_ordered_host(IssueQueue::Item* item, DeviceOrder::OwedEvents needed) {
  parts_.tasks.begin();
  const Status started = parts_.pool.run([this, item, needed = std::move(needed)] {
    Call& call = QueuedCalls::call_of(item);
    parts_.tasks.wait_for(needed);
    parts_.tasks.end();
    CallOutcome outcome = parts_.runner.run(call);
    if (outcome.kind == CallOutcome::Kind::kParked) {
      outcome.result = parts_.runner.run_rest(call, outcome.wait);
    }
    // Such a call may block in the driver itself, so there is nothing to hold it for.
    const bool wrong =
        outcome.kind == CallOutcome::Kind::kHeld || outcome.kind == CallOutcome::Kind::kAfterStream;
    if (wrong) outcome.result = kErrorUnknown;
    parts_.replies.answer(call, outcome.result);
    parts_.inbox.put_ended(item);
  });
  if (started.ok()) return;
  parts_.tasks.end();
  parts_.replies.answer(QueuedCalls::call_of(item), kErrorOutOfMemory);
  parts_.inbox.put_ended(item);
}

}  // namespace gpurun::server
