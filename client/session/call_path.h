// CallPath: the way of a call into the command log.
//
// This is the path of every launch. An append that finds room takes one lock: the log's, for the
// number and the place. It makes no system call and no allocation, and calls nothing virtual. A
// change must keep that.
//
// The order of the steps matters. What a reply may touch (the lane's expectation, the event's
// record) is noted before the commit, because the reply may come at once after it. The sender is
// woken after the commit, because a sender that looked earlier has not seen the record.
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "client/early_answers/host_memory_use.h"
#include "client/log/command_log.h"
#include "client/log/lane.h"
#include "client/session/fences.h"
#include "client/session/host_mirror_traffic.h"
#include "client/session/known_state.h"
#include "client/session/lane_replies.h"
#include "client/session/log_room.h"
#include "client/session/log_sender.h"
#include "client/session/session_shutdown.h"
#include "client/session/session_types.h"
#include "client/stats/stats.h"

namespace gpurun::client {

class CallPath {
 public:
  struct Uses {
    CommandLog& log;
    LogRoom& room;
    LogSender& sender;
    LaneReplies& replies;
    Fences& fences;
    KnownState& known;
    HostMemoryUse& memory;
    HostMirrorTraffic& mirror;
    SessionShutdown& shutdown;
    Stats& stats;
    const SessionOptions& options;
  };
  explicit CallPath(const Uses& uses) noexcept : uses_(uses), serial_(uses.replies.serial()) {}
  CallPath(const CallPath&) = delete;
  CallPath& operator=(const CallPath&) = delete;

  // See Session.
  int post(Lane& lane, const CallSite& site, std::span<const ByteView> parts,
           std::uint64_t* sequence = nullptr);
  int call(Lane& lane, const CallSite& site, std::span<const ByteView> parts, Reply* reply);

  // Appends a call. With `fence` the lane awaits the reply from before the commit, and the caller
  // then calls Fences::finish(). Without it the caller then calls wake_sender(). Waits while the
  // log is full. Returns 0 and sets `*sequence`. On any other CUresult nothing was appended.
  int append(Lane& lane, const CallSite& site, std::span<const ByteView> parts, bool fence,
             std::uint64_t* sequence);
  void wake_sender() noexcept { uses_.sender.wake(); }

  // Returns whether the lane's state is of this session, and not of an earlier one.
  bool has_adopted(const Lane& lane) const noexcept { return lane.session_ == serial_; }
  // The lane gets no failure that is older than its first call.
  void adopt(Lane& lane) {
    if (!has_adopted(lane)) uses_.known.errors.adopt(lane, serial_);
  }

 private:
  const Uses uses_;
  const std::uint64_t serial_;
};

}  // namespace gpurun::client
