// EarlyAnswers: conditions over what is known, cheapest first.
#include "client/early_answers/early_answers.h"

namespace gpurun::client {
namespace {

// So long the client answers polls by itself in a row. The worker's unasked reports may be late,
// because it lacks helpers (kHelperThreadsMax). After this time a poll asks the worker.
constexpr std::chrono::milliseconds kPollsUnasked{100};

constexpr int kNotReady = 600;  // CUDA_ERROR_NOT_READY (cuda.h).

}  // namespace

bool EarlyAnswers::idle(const Caller& caller, Waits waits, Handle context,
                        Handle stream) const noexcept {
  const bool posted = caller.adopted && caller.lane.posted_;
  if (uses_.every_call_is_a_fence || posted) return false;
  const Lane::OwnStream& own = caller.lane.own_stream_;
  const bool of_thread = waits == Waits::kForStream && stream == protocol::kStreamPerThread;
  if (of_thread && caller.adopted && own.context == context && own.done != 0 &&
      own.issued <= own.done) {
    return true;
  }
  return uses_.progress.idle(waits, context, stream);
}

bool EarlyAnswers::known_complete(Handle context) const noexcept {
  return !uses_.every_call_is_a_fence && uses_.progress.complete(context);
}

bool EarlyAnswers::still_not_ready(const Caller& caller, Handle event,
                                   std::uint64_t record) const noexcept {
  Lane& lane = caller.lane;
  const std::uint64_t early = caller.adopted ? lane.early_ : 0;
  const std::uint64_t answered = lane.not_ready_event_ == event ? lane.not_ready_ : 0;
  if ((early > record && early > answered) || uses_.events.any_shared() ||
      uses_.memory.is_shared() || device_may_use_memory() || uses_.bulk.any_written() ||
      !uses_.events.nothing_came(event)) {
    return false;
  }
  const Clock::time_point now = Clock::now();
  if (!lane.polls_since_.has_value()) lane.polls_since_ = now;
  return now - *lane.polls_since_ < kPollsUnasked;
}

std::uint64_t EarlyAnswers::last_issued(const Lane& lane, Handle context,
                                        Handle stream) const noexcept {
  if (stream > protocol::kStreamPerThread) return uses_.progress.last_issued_in(stream);
  // Only its own thread uses a per-thread stream.
  if (stream == protocol::kStreamPerThread) return lane.last_work_;
  return uses_.progress.last_issued(context);
}

std::optional<int> EarlyAnswers::poll(const Caller& caller, Handle context,
                                      Handle stream) const noexcept {
  const Lane& lane = caller.lane;
  if (uses_.every_call_is_a_fence || !caller.adopted) return {};
  const StreamPolls::Poll* const known = lane.stream_polls_.find(context, stream);
  if (known == nullptr) return {};
  // Before `came`: the news of written bytes are counted before they stop being outstanding.
  const bool unseen = uses_.bulk.any_written();
  const bool news = known->came != uses_.events.came();
  if (known->complete && last_issued(lane, context, stream) <= known->asked) {
    // A call since the last fence may have failed.
    return lane.posted_ ? std::nullopt : std::optional<int>(0);
  }
  const bool created = stream > protocol::kStreamPerThread;
  if (known->complete || news || unseen || lane.early_ > known->asked ||
      uses_.progress.last_early_copy() > known->asked || uses_.events.any_shared() ||
      uses_.memory.is_shared() || uses_.memory.device_may_use_beside(created ? stream : 0)) {
    return {};
  }
  if (!known->may_go_on(Clock::now(), uses_.ask_after_min)) return {};
  return kNotReady;
}

bool EarlyAnswers::device_may_use_memory() const noexcept { return uses_.memory.device_may_use(); }

bool EarlyAnswers::may_answer_early() const noexcept {
  // Known progress does not show that the program can see what the device has written.
  const bool due = uses_.writes_are_due != nullptr && uses_.writes_are_due(uses_.of);
  return !due && !uses_.every_call_is_a_fence && !uses_.memory.is_shared() &&
         !device_may_use_memory() && !uses_.memory.write_outstanding() &&
         !uses_.memory.graphs_touch_memory();
}

bool EarlyAnswers::may_wait(Lane& lane, Handle context, Handle stream) const noexcept {
  if (!may_answer_early() || lane.early_waits_ >= StreamProgress::kQuietMax ||
      !uses_.progress.may_wait_early(lane.id(), context, stream)) {
    return false;
  }
  ++lane.early_waits_;
  return true;
}

bool EarlyAnswers::may_wait_for_upload(const Lane& lane, Handle context, Handle stream,
                                       const EventCompletions::Place& place) const noexcept {
  if (!may_answer_early() || uses_.events.any_shared() || !place.ends_upload ||
      !uses_.progress.may_wait_for_upload(lane.id(), context, stream, place.record)) {
    return false;
  }
  // The upload may be queued behind a copy of another stream. The program may overwrite that copy's
  // source when the wait returns.
  if (!uses_.bulk.await_sources_read(uses_.bulk.last_begun(), std::chrono::milliseconds(0))) {
    return false;
  }
  return uses_.limiter.answers(place.record, place.posted, Clock::now());
}

}  // namespace gpurun::client
