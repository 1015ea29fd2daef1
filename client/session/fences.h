// Fences: waits of the program's threads, for the reply to a call or for news of an event.
//
// A fence is a round trip. Its thread sends the log up to its own record, then reads the log itself
// when no other thread does. When it has ended, the thread writes what kernels printed, and gets
// the failures of earlier calls. A wait has no deadline. The silence deadline of the reading thread
// bounds it.
#pragma once

#include <chrono>
#include <cstdint>

#include "client/early_answers/event_completions.h"
#include "client/log/command_log.h"
#include "client/log/lane.h"
#include "client/session/host_mirror_traffic.h"
#include "client/session/known_state.h"
#include "client/session/lane_replies.h"
#include "client/session/log_receiver.h"
#include "client/session/log_sender.h"
#include "client/session/session_shutdown.h"
#include "client/session/session_types.h"
#include "client/stats/stats.h"

namespace gpurun::client {

class Fences {
 public:
  struct Uses {
    CommandLog& log;
    LogSender& sender;
    LogReceiver& receiver;
    LaneReplies& replies;
    KnownState& known;
    HostMirrorTraffic& mirror;
    SessionShutdown& shutdown;
    Stats& stats;
  };
  explicit Fences(const Uses& uses) noexcept : uses_(uses) {}
  Fences(const Fences&) = delete;
  Fences& operator=(const Fences&) = delete;

  // Sends what is needed and waits for the reply to `sequence`. CallPath::append() made that call a
  // fence. Returns the call's result: see Session::call().
  int finish(Lane& lane, const CallSite& site, std::uint64_t sequence, Reply* reply);
  // As finish(), for a call of the session itself. Leaves failures of earlier calls, and what
  // kernels printed, to the program's calls. False: the session has ended.
  bool receive(Lane& lane, const CallSite& site, std::uint64_t sequence, Reply* reply);

  // Waits for the news of `record` of the event site.subject, which are coming, or for the end of
  // the context or the session.
  EventCompletions::State await_event(Lane& lane, const CallSite& site, std::uint64_t record);
  EventCompletions::State event_state(Handle event, std::uint64_t record) const noexcept {
    return uses_.known.events.state(event, record, uses_.replies.completions());
  }

 private:
  using Clock = std::chrono::steady_clock;

  // Waits for the reply. Returns whether it came.
  bool await_reply(Lane& lane, std::uint64_t sequence);
  // See HostMirrorTraffic::take(). False: the session has ended.
  bool take_device_writes(Lane& lane, const CallSite& site, int result);

  const Uses uses_;
};

}  // namespace gpurun::client
