// WaitAnswers: polls and waits that send nothing, and waits that are posted.
#include "client/session/wait_answers.h"

#include <cstdint>
#include <optional>
#include <span>

namespace gpurun::client {

int WaitAnswers::deliver(Lane& lane, Handle context) {
  uses_.known.output.write_kept();
  uses_.calls.adopt(lane);
  return uses_.known.errors.take(lane, context);
}

bool WaitAnswers::event(Lane& lane, const CallSite& site, bool wait, int* result) {
  using State = EventCompletions::State;
  *result = uses_.shutdown.refusal(site.context);
  if (*result != 0) return true;
  const std::uint64_t record = uses_.known.events.asked(site.subject);
  if (uses_.options.every_call_is_a_fence) return false;
  State state = uses_.fences.event_state(site.subject, record);
  if ((state == State::kComing || state == State::kArriving) && wait) {
    state = uses_.fences.await_event(lane, site, record);
    *result = uses_.shutdown.refusal(site.context);
    if (*result != 0) return true;
  }
  const bool runs = state == State::kComing && !wait &&
                    uses_.early.still_not_ready(caller(lane), site.subject, record);
  // What came between the two checks may have been the news.
  if (state == State::kComing && !runs) state = uses_.fences.event_state(site.subject, record);
  if (state != State::kComplete && !runs) return false;
  *result = deliver(lane, site.context);
  if (*result == 0 && runs) *result = kResultNotReady;
  return true;
}

bool WaitAnswers::idle(Lane& lane, const CallSite& site, int* result) {
  *result = uses_.shutdown.refusal(site.context);
  if (*result != 0) return true;
  if (!uses_.early.idle(caller(lane), site.waits, site.context, site.stream)) return false;
  *result = deliver(lane, site.context);
  return true;
}

bool WaitAnswers::poll(Lane& lane, const CallSite& site, int* result) {
  *result = uses_.shutdown.refusal(site.context);
  if (*result != 0) return true;
  const std::optional<int> known = uses_.early.poll(caller(lane), site.context, site.stream);
  if (!known.has_value()) return false;
  *result = deliver(lane, site.context);
  if (*result == 0) *result = *known;
  return true;
}

int WaitAnswers::post_wait(Lane& lane, CallSite site, Work work, ByteView payload) {
  site.order = protocol::Order::kStream;
  site.flags = protocol::kFlagBarrier;
  site.work = work;
  const std::span<const ByteView> parts(&payload, 1);
  std::uint64_t sequence = 0;
  const int result = uses_.calls.append(lane, site, parts, false, &sequence);
  if (result != 0) return result;
  // The worker holds later queries back behind this wait, in every lane.
  uses_.known.events.something_comes();
  uses_.calls.wake_sender();
  uses_.known.output.write_kept();
  return uses_.known.errors.take(lane, site.context);
}

bool WaitAnswers::wait(Lane& lane, CallSite site, ByteView payload, int* result) {
  if (!uses_.early.may_wait(lane, site.context, site.stream)) return false;
  *result = post_wait(lane, site, Work::kRecord, payload);
  return true;
}

EventRecord WaitAnswers::stream_of_record(Handle event) {
  const std::uint64_t record = uses_.known.events.asked(event);
  uses_.known.events.waited(event);
  const std::optional<EventCompletions::Place> place = uses_.known.events.place_of(event, record);
  if (!place.has_value() ||
      uses_.fences.event_state(event, record) != EventCompletions::State::kComing) {
    return {};
  }
  return {place->stream, record};
}

bool WaitAnswers::wait(Lane& lane, const EventRecord& record, CallSite site, ByteView payload,
                       int* result) {
  if (wait(lane, site, payload, result)) return true;
  const std::optional<EventCompletions::Place> place =
      uses_.known.events.place_of(site.subject, record.record);
  if (!place.has_value() || uses_.shutdown.refusal(site.context) != 0 ||
      !uses_.early.may_wait_for_upload(lane, site.context, site.stream, *place)) {
    return false;
  }
  *result = post_wait(lane, site, Work::kNone, payload);
  return true;
}

}  // namespace gpurun::client
