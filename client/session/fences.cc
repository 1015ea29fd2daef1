// Fences: waiting for a reply or for an event's news. The waiting thread reads the log itself when
// no other thread does.
#include <utility>

#include "client/session/session_impl.h"
#include "driver_abi/opcodes.h"

namespace gpurun::client {
namespace {

// So long the client answers polls by itself in a row. The worker's unasked reports may be late,
// because it lacks helpers (kHelperThreadsMax). After this time a poll asks the worker.
constexpr std::chrono::milliseconds kPollsUnasked{100};

// Gives the role up, also when memory runs out.
class HeldRole {
 public:
  explicit HeldRole(ReceivingRole& role) noexcept : role_(role) {}
  ~HeldRole() { role_.give_to_watcher(); }
  HeldRole(const HeldRole&) = delete;
  HeldRole& operator=(const HeldRole&) = delete;

 private:
  ReceivingRole& role_;
};

}  // namespace

void Session::Impl::await(Lane& lane, std::uint64_t sequence) {
  const std::lock_guard<std::mutex> lock(lane.mutex_);
  if (lane.awaited_in_ != serial) {
    lane.abandoned_ = 0;
  } else if (lane.awaited_ != 0 && !lane.answered_) {
    ++lane.abandoned_;
  }
  lane.awaited_ = sequence;
  lane.awaited_in_ = serial;
  lane.answered_ = false;
  lane.watermark_ = 0;
  lane.came_ = events.came();
}

template <typename Done>
Status Session::Impl::receive_until(Done done) {
  Status status;
  const auto over = [&] { return !status.ok() || !shutdown.alive() || done(); };
  bool again = false;
  const bool came = reader_spin.wait([&] {
    status = receive_what_is_there(std::exchange(again, true));
    return over();
  });
  if (came) return status;
  const Clock::time_point start = Clock::now();
  while (!over()) status = receive_more(Deadline::in(life_signs.until_next_beat()));
  reader_spin.slept(Clock::now() - start);
  return status;
}

template <typename Look>
void Session::Impl::wait_for(Lane& lane, Look look) {
  const auto lacks = [&] {
    const std::lock_guard<std::mutex> lock(lane.mutex_);
    return look();
  };
  for (;;) {
    {
      std::unique_lock<std::mutex> lock(lane.mutex_);
      const Lacks lacking = look();
      if (lacking == Lacks::kNothing) return;
      // No deadline: kernels may run for hours. The reading thread's silence deadline bounds it.
      if (lacking == Lacks::kBytes || !receiving.take_from_watcher()) {
        lane.arrived_.wait(lock);
        continue;
      }
    }
    Status status;
    {
      const HeldRole held(receiving);
      status = receive_until([&] { return lacks() != Lacks::kNews; });
      if (status.ok()) status = receive_held();
      // While this thread has the role, no other thread can read on and find another reason first.
      if (!status.ok() && !shutdown.ending()) shutdown.die(std::move(status));
    }
  }
}

int Session::Impl::finish(Lane& lane, const CallSite& site, std::uint64_t sequence, Reply* reply) {
  const NoCancellation uncancelled;
  const Clock::time_point start = Clock::now();
  sender.send_through(sequence);
  bool answered = false;
  wait_for(lane, [&] {
    answered =
        lane.answered_ && bulk_completions.load(std::memory_order_acquire) >= lane.watermark_;
    if (answered || !shutdown.alive()) {
      lane.awaited_ = 0;
      return Lacks::kNothing;
    }
    return lane.answered_ ? Lacks::kBytes : Lacks::kNews;
  });
  // No thread writes to the lane any more, because nothing is awaited.
  if (answered) {
    *reply = Reply{lane.result_, lane.reply_};
    lane.posted_ = false;
    lane.early_waits_ = 0;
    lane.polls_since_.reset();
    if (site.opcode == driver_abi::opcode::cuEventQuery && reply->result == kResultNotReady) {
      events.not_ready(site.subject, lane.came_);
      lane.not_ready_event_ = site.subject;
      lane.not_ready_ = sequence;
    }
    if (reply->result == 0) progress.complete(site.waits, site.context, site.stream, sequence);
  }
  const Clock::duration taken = Clock::now() - start;
  if (answered) early_waits.fence_took(taken);
  if (stats.enabled()) stats.count_fence({site.opcode, lane.id(), sequence, taken});
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

bool Session::Impl::still_not_ready(Lane& lane, Handle event, std::uint64_t record) const noexcept {
  const std::uint64_t early = lane.session_ == serial ? lane.early_ : 0;
  const std::uint64_t answered = lane.not_ready_event_ == event ? lane.not_ready_ : 0;
  if ((early > record && early > answered) || events.any_shared() ||
      session->memory_shared_.load(std::memory_order_acquire) != 0 || !events.nothing_came(event)) {
    return false;
  }
  const Clock::time_point now = Clock::now();
  if (!lane.polls_since_.has_value()) lane.polls_since_ = now;
  return now - *lane.polls_since_ < kPollsUnasked;
}

EventCompletions::State Session::Impl::await_event(Lane& lane, const CallSite& site,
                                                   std::uint64_t record) {
  using State = EventCompletions::State;
  const NoCancellation uncancelled;
  const Clock::time_point start = stats.enabled() ? Clock::now() : Clock::time_point();
  // No call was made since, so the record has to get there first. This is a round trip like any
  // other.
  const bool round_trip = log.last_sequence() == record;
  if (round_trip) sender.send_through(record);
  State state = State::kComing;
  // Counted before the check that decides: the receiving thread first notes, then reads the count.
  event_waiters.fetch_add(1, std::memory_order_acq_rel);
  wait_for(lane, [&] {
    state = event_state(site.subject, record);
    if ((state != State::kComing && state != State::kArriving) ||
        shutdown.refusal(site.context) != 0) {
      return Lacks::kNothing;
    }
    return state == State::kComing ? Lacks::kNews : Lacks::kBytes;
  });
  event_waiters.fetch_sub(1, std::memory_order_acq_rel);
  if (stats.enabled()) {
    const Stats::Waited waited{site.opcode, lane.id(), record, Clock::now() - start};
    round_trip ? stats.count_fence(waited) : stats.count_wait(waited);
  }
  return state;
}

bool Session::event_answered(Lane& lane, const CallSite& site, bool wait, int* result) {
  using State = EventCompletions::State;
  Impl& impl = *impl_;
  *result = impl.shutdown.refusal(site.context);
  if (*result != 0) return true;
  const std::uint64_t record = impl.events.asked(site.subject);
  if (impl.options.every_call_is_a_fence) return false;
  State state = impl.event_state(site.subject, record);
  if ((state == State::kComing || state == State::kArriving) && wait) {
    state = impl.await_event(lane, site, record);
    *result = impl.shutdown.refusal(site.context);
    if (*result != 0) return true;
  }
  const bool runs =
      state == State::kComing && !wait && impl.still_not_ready(lane, site.subject, record);
  // What came between the two checks may have been the news.
  if (state == State::kComing && !runs) state = impl.event_state(site.subject, record);
  if (state != State::kComplete && !runs) return false;
  impl.output.write_kept();
  if (lane.session_ != impl.serial) impl.errors.adopt(lane, impl.serial);
  *result = impl.errors.take(lane, site.context);
  if (*result == 0 && runs) *result = kResultNotReady;
  return true;
}

bool Session::idle_answered(Lane& lane, const CallSite& site, int* result) {
  Impl& impl = *impl_;
  *result = impl.shutdown.refusal(site.context);
  if (*result != 0) return true;
  const bool posted = lane.session_ == impl.serial && lane.posted_;
  if (impl.options.every_call_is_a_fence || posted) return false;
  if (!impl.progress.idle(site.waits, site.context, site.stream)) return false;
  impl.output.write_kept();
  if (lane.session_ != impl.serial) impl.errors.adopt(lane, impl.serial);
  *result = impl.errors.take(lane, site.context);
  return true;
}

bool Session::known_complete(Handle context) const noexcept {
  return !impl_->options.every_call_is_a_fence && impl_->progress.complete(context);
}

int Session::Impl::post_early_wait(Lane& lane, CallSite site, Work work, ByteView payload) {
  site.order = protocol::Order::kStream;
  site.flags = protocol::kFlagBarrier;
  site.work = work;
  const std::span<const ByteView> parts(&payload, 1);
  std::uint64_t sequence = 0;
  if (const int result = append(lane, site, parts, false, &sequence); result != 0) return result;
  // The worker holds later queries back behind this wait, in every lane.
  events.something_comes();
  sender.wake();
  output.write_kept();
  return errors.take(lane, site.context);
}

bool Session::wait_answered_early(Lane& lane, CallSite site, ByteView payload, int* result) {
  Impl& impl = *impl_;
  if (!may_answer_early() || lane.early_waits_ >= StreamProgress::kQuietMax ||
      !impl.progress.may_wait_early(lane.id(), site.context, site.stream)) {
    return false;
  }
  ++lane.early_waits_;
  *result = impl.post_early_wait(lane, site, Work::kRecord, payload);
  return true;
}

Session::Recorded Session::stream_of_record(Handle event) {
  Impl& impl = *impl_;
  const std::uint64_t record = impl.events.asked(event);
  impl.events.waited(event);
  const std::optional<EventCompletions::Place> place = impl.events.place_of(event, record);
  if (!place.has_value() || impl.event_state(event, record) != EventCompletions::State::kComing) {
    return {};
  }
  return {place->stream, record};
}

bool Session::wait_answered_early(Lane& lane, const Recorded& record, CallSite site,
                                  ByteView payload, int* result) {
  Impl& impl = *impl_;
  if (wait_answered_early(lane, site, payload, result)) return true;
  const std::optional<EventCompletions::Place> place =
      impl.events.place_of(site.subject, record.record);
  if (!may_answer_early() || impl.events.any_shared() || !place.has_value() ||
      !place->ends_upload || impl.shutdown.refusal(site.context) != 0 ||
      !impl.progress.may_wait_for_upload(lane.id(), site.context, site.stream, record.record)) {
    return false;
  }
  // The upload may be queued behind a copy of another stream. The program may overwrite that copy's
  // source when the wait returns.
  if (!sources_read_within(std::chrono::milliseconds(0))) return false;
  if (!impl.early_waits.answers(record.record, place->posted, Impl::Clock::now())) return false;
  *result = impl.post_early_wait(lane, site, Work::kNone, payload);
  return true;
}

}  // namespace gpurun::client
