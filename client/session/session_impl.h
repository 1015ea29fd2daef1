// Session::Impl: the inside of Session. Only these files include it: session.cc (start, end,
// appending), receiver.cc, fences.cc, copies.cc.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>

#include "client/bulk/bulk.h"
#include "client/bulk/bulk_opener.h"
#include "client/log/command_log.h"
#include "client/process/thread.h"
#include "client/progress/deferred_errors.h"
#include "client/progress/event_completions.h"
#include "client/progress/receiving_role.h"
#include "client/session/device_output.h"
#include "client/session/graph_host.h"
#include "client/session/life_signs.h"
#include "client/session/log_room.h"
#include "client/session/log_sender.h"
#include "client/session/session.h"
#include "client/session/session_shutdown.h"
#include "client/stats/stats.h"
#include "protocol/log/frame_reader.h"

namespace gpurun::client {

struct Session::Impl {
  using Clock = std::chrono::steady_clock;

  Impl(Channels given, const SessionOptions& chosen);
  ~Impl();

  // session.cc
  Bulk::Listener bulk_listener();
  Status start_threads();
  void join_threads();
  // Appends a call. With `fence` the lane awaits the reply from before the commit. Waits while the
  // log is full. Returns 0 and sets `*sequence`. On any other CUresult nothing was appended.
  int append(Lane& lane, const CallSite& site, std::span<const ByteView> parts, bool fence,
             std::uint64_t* sequence);

  // fences.cc
  void await(Lane& lane, std::uint64_t sequence);
  // What a waiting thread still lacks.
  enum class Lacks : std::uint8_t {
    kNothing,
    kNews,   // A reply on the log, which the waiting thread may read itself.
    kBytes,  // Bytes from elsewhere, which wake_lanes() reports.
  };
  // Waits until `look` returns kNothing. It is called under the lane's mutex.
  template <typename Look>
  void wait_for(Lane& lane, Look look);
  // For the holder of the receiving role. Polls for a moment, then sleeps.
  template <typename Done>
  Status receive_until(Done done);
  // Sends what is needed and waits for the reply to `sequence`. append() made that call a fence.
  int finish(Lane& lane, const CallSite& site, std::uint64_t sequence, Reply* reply);
  EventCompletions::State event_state(Handle event, std::uint64_t record) const noexcept;
  // Returns whether nothing can have shown this lane that `event` is complete. Its news are coming.
  bool still_not_ready(Lane& lane, Handle event, std::uint64_t record) const noexcept;
  // Posts a wait without waiting for it. All later calls wait for it in the worker.
  int post_early_wait(Lane& lane, CallSite site, Work work, ByteView payload);
  // Waits for the news of `record`, which are coming, or for the end of the context or the session.
  EventCompletions::State await_event(Lane& lane, const CallSite& site, std::uint64_t record);

  // copies.cc. Appends a call and sends `source` (not empty) as its bulk. With `reply` the call is
  // a fence.
  int send_with_bulk(Lane& lane, CallSite site, std::span<const ByteView> parts, ByteView source,
                     Reading reading, Reply* reply);
  // Returns whether a copy in of these bytes goes without a transfer.
  bool travels_in_record(ByteView source) const noexcept;
  // As Session's copies, with the record's head: CopyPayload, or BoxCopyPayload with its flag.
  int copy_in(Lane& lane, CallSite site, ByteView head, ByteView source, Reading reading);
  int copy_out(Lane& lane, CallSite site, const HostBox& destination, ByteView head, bool wait);

  // receiver.cc. All except run_receiver() need the receiving role, on any thread.
  void run_receiver();
  // Receives and handles what is there, without waiting. Then calls receive_held().
  Status receive_what_came();
  // Receives and handles what is there, as Connection::receive_some().
  Status receive_what_is_there(bool again);
  Status heard(std::size_t bytes);
  // Waits for more until `deadline`, and handles it. Passing the deadline is no failure unless the
  // peer was silent for too long.
  Status receive_more(Deadline deadline);
  Status handle_frames();
  // Call it after receiving, before the role is given up. Bytes that were taken from the connection
  // must be handled now, because no watch reports them.
  Status receive_held();
  Status handle_frame(const protocol::Frame& frame);
  Status check_owed(const protocol::FrameHeader& heartbeat);
  Status handle_replies(const protocol::Frame& frame);
  Status handle_item(const protocol::ReplyView& item);
  Status handle_reply(const protocol::ReplyView& item);
  Status handle_call_error(const protocol::ReplyHeader& header);
  void note_progress(const protocol::ReplyHeader& header);
  Status await_copies(std::uint64_t through);
  Status take_copy(const protocol::ReplyView& item);
  void wake_event_waiters();

  // Stops the connections and wakes all threads that wait. See SessionShutdown::Stop.
  void stop_all();
  void wake_lanes();
  // Bulk calls it, on one or several connections at once. The highest number counts.
  void completed_through(std::uint64_t number);

  Session* session = nullptr;
  // Never reused, unlike the address, because a lane may outlive a session.
  const std::uint64_t serial;
  Channels channels;
  const SessionOptions options;
  CommandLog log;
  Stats stats;
  DeferredErrors errors;
  EventCompletions events;
  StreamProgress progress;
  EarlyWaitLimiter early_waits{options.ahead_slack};
  std::atomic<std::uint32_t> event_waiters{0};  // Threads in await_event().
  GraphHost graphs{session};
  DeviceOutput output;
  SessionShutdown shutdown;
  LogRoom room;
  Bulk bulk;
  std::optional<BulkOpener> opener;  // Empty: no connection joins.
  LogSender sender;
  LifeSigns life_signs;

  ReceivingRole receiving;
  // For the receiving role.
  protocol::FrameReader reader;
  BriefSpin reader_spin;       // For threads that wait, not for the receiver thread.
  std::uint64_t failures = 0;  // Of calls that had been answered.

  // Transfers from the worker that have arrived whole: 1 to this number.
  std::atomic<std::uint64_t> bulk_completions{0};

  std::mutex bulk_order;  // Held while a record that names our bulk is appended.

  Thread receiver;
};

}  // namespace gpurun::client
