// ReplyHandler: what the worker sends on the log, and what each item of it does. It passes replies
// to their lanes, and notes failures, ended events, output and finished work.
//
// The thread with the receiving role calls it. That may be any thread of the program that waits for
// a reply. So it makes no calls, and it writes nothing that the program could hold up. It blocks
// only for bytes of copies that the worker has sent before the item.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/status.h"
#include "client/bulk/bulk.h"
#include "client/log/command_log.h"
#include "client/session/graph_host.h"
#include "client/session/known_state.h"
#include "client/session/lane_replies.h"
#include "client/session/life_signs.h"
#include "client/session/log_room.h"
#include "client/session/log_sender.h"
#include "client/session/session_shutdown.h"
#include "client/session/session_types.h"
#include "protocol/log/frame_reader.h"
#include "protocol/log/record.h"

namespace gpurun::client {

class ReplyHandler {
 public:
  struct Uses {
    CommandLog& log;
    LogRoom& room;
    LogSender& sender;
    LifeSigns& life_signs;
    LaneReplies& replies;
    KnownState& known;
    Bulk& bulk;
    GraphHost& graphs;
    SessionShutdown& shutdown;
    const SessionOptions& options;
    HandleTable& handles;
  };
  explicit ReplyHandler(const Uses& uses) noexcept : uses_(uses) {}
  ReplyHandler(const ReplyHandler&) = delete;
  ReplyHandler& operator=(const ReplyHandler&) = delete;

  // A failure ends the session: a protocol error, or the worker's goodbye.
  Status handle(const protocol::Frame& frame);

  // Any thread. See Session::set_work_done().
  void set_work_done(void (*tell)(std::uint64_t ticket)) noexcept {
    work_done_.store(tell, std::memory_order_release);
  }

 private:
  Status check_owed(const protocol::FrameHeader& heartbeat);
  Status handle_replies(const protocol::Frame& frame);
  Status handle_item(const protocol::ReplyView& item);
  Status handle_reply(const protocol::ReplyView& item);
  Status handle_call_error(const protocol::ReplyHeader& header);
  void note_progress(const protocol::ReplyHeader& header);
  Status await_copies(std::uint64_t through);
  Status take_copy(const protocol::ReplyView& item);

  const Uses uses_;
  std::uint64_t failures_ = 0;  // Of calls that had been answered.
  std::atomic<void (*)(std::uint64_t)> work_done_{nullptr};
};

}  // namespace gpurun::client
