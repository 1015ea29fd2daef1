// LogSender: the sending half of the log connection, and the flush rule.
//
// At most one thread sends on the log at a time. It holds the sending role. A record is sent by the
// thread that waits for its reply, or by the sender thread as soon as that is idle. It is never
// sent by a timer. A thread that gives the role up checks for new records afterwards. A thread that
// appends looks at the role after its commit. So no record waits.
//
// The role, the bell and the two flags are atomics. There is no lock here.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/brief_spin.h"
#include "base/status.h"
#include "client/bulk/bulk.h"
#include "client/log/command_log.h"
#include "client/process/doorbell.h"
#include "client/process/thread.h"
#include "client/session/session_shutdown.h"
#include "client/stats/stats.h"
#include "protocol/log/frame.h"
#include "protocol/log/log_packer.h"
#include "transport/transport.h"

namespace gpurun::client {

class LogSender {
 public:
  LogSender(CommandLog& log, transport::Connection& connection, Bulk& bulk,
            SessionShutdown& shutdown, Stats& stats, const SessionOptions& options);
  LogSender(const LogSender&) = delete;
  LogSender& operator=(const LogSender&) = delete;

  // Starts the sender thread. It ends after a ring() once the session ends or its peer is gone.
  Status start();
  void join() noexcept { thread_.join(); }

  // Any thread. Call it after a commit without a wait for the reply.
  void wake() noexcept {
    if (is_idle()) doorbell_.ring();
  }
  // Returns whether no thread has the sending role at this moment.
  bool is_idle() const noexcept { return role_.load(std::memory_order_seq_cst) == 0; }
  // Any thread. Wakes the sender thread in every case.
  void ring() noexcept { doorbell_.ring(); }
  // For a waiting thread: sends the log up to its own record. If another thread has the role, that
  // thread sends it. `pause`: of the connection's watch (Connection::send_paused()).
  void send_through(std::uint64_t sequence, transport::WatchPause& pause);

  // The rest is for the thread with the receiving role, which must not send. It must not block
  // behind a peer that reads nothing.
  void send_heartbeat() noexcept {
    heartbeat_due_.store(true, std::memory_order_release);
    doorbell_.ring();
  }
  // The number of reply items that were taken.
  std::uint64_t replies_taken() const noexcept {
    return replies_taken_.load(std::memory_order_relaxed);
  }
  void note_replies_taken(std::uint64_t through) noexcept {
    replies_taken_.store(through, std::memory_order_release);
  }
  // Acknowledges the replies by themselves if no frame has done so for many of them.
  void acknowledge_many() noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  bool take_role() noexcept;
  void release_role() noexcept;
  void send_all();  // For the sender thread.
  // `pause`: nullptr, or as send_through().
  Status send_batch(std::uint64_t* last_sequence, transport::WatchPause* pause);
  protocol::FrameHeader frame_header(protocol::FrameKind kind);  // Sent at once.
  Status send_empty_frame(protocol::FrameKind kind);
  void run();
  void gather();

  CommandLog& log_;
  transport::Connection& connection_;
  Bulk& bulk_;
  SessionShutdown& shutdown_;
  Stats& stats_;

  alignas(64) std::atomic<std::uint32_t> role_{0};  // 0: free, 1: taken.
  protocol::LogPacker packer_;                      // For the sending role.
  Doorbell doorbell_;                               // For the sender thread.
  BriefSpin spin_;                                  // For the sender thread.
  int gather_rest_ = 0;  // For the sender thread: batches that go out without gather().
  std::atomic<bool> heartbeat_due_{false};
  std::atomic<bool> acknowledge_due_{false};
  std::atomic<std::uint64_t> replies_taken_{0};         // Written by the receiving role only.
  std::atomic<std::uint64_t> replies_acknowledged_{0};  // Of these. Written by the sending role.
  Thread thread_;
};

}  // namespace gpurun::client
