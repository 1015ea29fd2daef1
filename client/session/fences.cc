// Fences: the two waits.
#include "client/session/fences.h"

#include "client/process/no_cancellation.h"
#include "driver_abi/opcodes.h"

namespace gpurun::client {

// No thread writes to the lane afterwards, because nothing is awaited.
bool Fences::await_reply(Lane& lane, std::uint64_t sequence) {
  transport::WatchPause pause(uses_.receiver.watch());
  uses_.sender.send_through(sequence, pause);
  bool answered = false;
  LogReceiver::Paused receiver(uses_.receiver, pause);
  uses_.replies.wait_for(lane, receiver, [&] {
    return uses_.replies.lacks_reply(lane, uses_.shutdown.alive(), &answered);
  });
  return answered;
}

// A call that passes the work of streams shows the program nothing of that work. The time between
// two events does, once both are complete.
bool Fences::take_device_writes(Lane& lane, const CallSite& site, int result) {
  const bool times = site.opcode == driver_abi::opcode::cuEventElapsedTime ||
                     site.opcode == driver_abi::opcode::cuEventElapsedTime_v2;
  const bool passes = site.order == protocol::Order::kImmediate ||
                      ((site.flags & protocol::kFlagPassesStreams) != 0 && !times);
  if (passes || result == kResultNotReady || !uses_.mirror.is_due()) return true;
  Bytes reply;  // The caller has a view of it.
  reply.swap(lane.reply_);
  const bool taken = uses_.mirror.take(lane);
  reply.swap(lane.reply_);
  return taken;
}

bool Fences::receive(Lane& lane, const CallSite& site, std::uint64_t sequence, Reply* reply) {
  const Clock::time_point start = Clock::now();
  if (!await_reply(lane, sequence)) return false;
  if (uses_.stats.enabled()) {
    uses_.stats.count_fence({site.opcode, lane.id(), sequence, Clock::now() - start});
  }
  *reply = Reply{lane.result_, lane.reply_};
  lane.posted_ = false;
  return true;
}

int Fences::finish(Lane& lane, const CallSite& site, std::uint64_t sequence, Reply* reply) {
  const NoCancellation uncancelled;
  const Clock::time_point start = Clock::now();
  const bool answered = await_reply(lane, sequence);
  if (answered) {
    *reply = Reply{lane.result_, lane.reply_};
    lane.posted_ = false;
    lane.early_waits_ = 0;
    lane.polls_since_.reset();
    if (site.opcode == driver_abi::opcode::cuEventQuery && reply->result == kResultNotReady) {
      uses_.known.events.not_ready(site.subject, lane.came_);
      lane.not_ready_event_ = site.subject;
      lane.not_ready_ = sequence;
    }
    if (site.opcode == driver_abi::opcode::cuStreamQuery &&
        (reply->result == 0 || reply->result == kResultNotReady)) {
      lane.stream_polls_.answered(
          {site.context, site.stream, sequence, reply->result == 0, lane.came_, lane.last_work_},
          Clock::now());
    }
    if (reply->result == 0) {
      uses_.known.progress.complete(site.waits, site.context, site.stream, sequence);
      if (site.waits == Waits::kForStream && site.stream == protocol::kStreamPerThread &&
          lane.own_stream_.context == site.context) {
        lane.own_stream_.done = sequence;
      }
      if (site.opcode == driver_abi::opcode::cuStreamQuery) {
        uses_.known.progress.told(site.context, site.stream, sequence);
      }
    }
  }
  const Clock::duration taken = Clock::now() - start;
  const bool seen = answered && take_device_writes(lane, site, reply->result);
  if (answered) uses_.known.early_waits.fence_took(taken);
  if (uses_.stats.enabled()) uses_.stats.count_fence({site.opcode, lane.id(), sequence, taken});
  uses_.known.output.write_kept();
  if (!seen) return kResultPeerGone;
  if (const int lost = uses_.known.errors.sticky(site.context); lost != 0) return lost;
  const int earlier = uses_.known.errors.take(lane, site.context);
  return earlier != 0 ? earlier : reply->result;
}

EventCompletions::State Fences::await_event(Lane& lane, const CallSite& site,
                                            std::uint64_t record) {
  using State = EventCompletions::State;
  const NoCancellation uncancelled;
  const Clock::time_point start = uses_.stats.enabled() ? Clock::now() : Clock::time_point();
  // No call was made since, so the record has to get there first. This is a round trip like any
  // other.
  const bool round_trip = uses_.log.last_sequence() == record;
  transport::WatchPause pause(uses_.receiver.watch());
  if (round_trip) uses_.sender.send_through(record, pause);
  State state = State::kComing;
  uses_.replies.begin_event_wait();
  LogReceiver::Paused receiver(uses_.receiver, pause);
  uses_.replies.wait_for(lane, receiver, [&] {
    state = event_state(site.subject, record);
    if ((state != State::kComing && state != State::kArriving) ||
        uses_.shutdown.refusal(site.context) != 0) {
      return LaneReplies::WaitState::kNothing;
    }
    return state == State::kComing ? LaneReplies::WaitState::kNews : LaneReplies::WaitState::kBytes;
  });
  uses_.replies.end_event_wait();
  if (uses_.stats.enabled()) {
    const Stats::Waited waited{site.opcode, lane.id(), record, Clock::now() - start};
    round_trip ? uses_.stats.count_fence(waited) : uses_.stats.count_wait(waited);
  }
  return state;
}

}  // namespace gpurun::client
