// Waiting for a reply.
#include "client/session_impl.h"

namespace gpurun::client {

void Session::Impl::await(Lane& lane, std::uint64_t sequence) {
  const std::lock_guard<std::mutex> lock(lane.mutex_);
  lane.awaited_ = sequence;
  lane.answered_ = false;
  lane.watermark_ = 0;
}

int Session::Impl::finish(Lane& lane, const CallSite& site, std::uint64_t sequence, Reply* reply) {
  const Clock::time_point start = stats.enabled() ? Clock::now() : Clock::time_point();
  send_log_through(sequence);
  bool answered = false;
  {
    std::unique_lock<std::mutex> lock(lane.mutex_);
    // No deadline: kernels may run for hours. The receiver's silence deadline bounds it.
    lane.arrived_.wait(lock, [&] {
      answered =
          lane.answered_ && bulk_completions.load(std::memory_order_acquire) >= lane.watermark_;
      return answered || !session->alive();
    });
    lane.awaited_ = 0;
    if (answered) *reply = Reply{lane.result_, lane.reply_};
  }
  if (stats.enabled()) stats.count_fence(site.opcode, Clock::now() - start);
  output.write_kept();
  if (!answered) return kResultPeerGone;
  if (const int lost = errors.sticky(site.context); lost != 0) return lost;
  const int earlier = errors.take(lane, site.context);
  return earlier != 0 ? earlier : reply->result;
}

EventCompletions::State Session::Impl::event_state(Handle event,
                                                   std::uint64_t record) const noexcept {
  return events.state(event, record, bulk_completions.load(std::memory_order_acquire));
}

EventCompletions::State Session::Impl::await_event(Lane& lane, const CallSite& site,
                                                   std::uint64_t record) {
  using State = EventCompletions::State;
  const Clock::time_point start = stats.enabled() ? Clock::now() : Clock::time_point();
  // Nothing was called since: the record has to get there first, and this is a round trip like any.
  const bool round_trip = log.last_sequence() == record;
  if (round_trip) send_log_through(record);
  State state = State::kComing;
  // Counted before the look that decides: the receiver notes first, then reads the count.
  event_waiters.fetch_add(1, std::memory_order_acq_rel);
  {
    std::unique_lock<std::mutex> lock(lane.mutex_);
    // No deadline, as in finish().
    lane.arrived_.wait(lock, [&] {
      state = event_state(site.subject, record);
      return state != State::kComing || refusal(site.context) != 0;
    });
  }
  event_waiters.fetch_sub(1, std::memory_order_acq_rel);
  if (stats.enabled()) {
    const auto waited = Clock::now() - start;
    round_trip ? stats.count_fence(site.opcode, waited) : stats.count_wait(site.opcode, waited);
  }
  return state;
}

bool Session::event_answered(Lane& lane, const CallSite& site, bool wait, int* result) {
  using State = EventCompletions::State;
  Impl& impl = *impl_;
  *result = impl.refusal(site.context);
  if (*result != 0) return true;
  const std::uint64_t record = impl.events.asked(site.subject);
  if (impl.options.every_call_is_a_fence) return false;
  State state = impl.event_state(site.subject, record);
  if (state == State::kComing && wait) {
    state = impl.await_event(lane, site, record);
    *result = impl.refusal(site.context);
    if (*result != 0) return true;
  }
  if (state != State::kComplete) return false;
  impl.output.write_kept();
  if (lane.session_ != impl.serial) impl.errors.adopt(lane, impl.serial);
  *result = impl.errors.take(lane, site.context);
  return true;
}

}  // namespace gpurun::client
