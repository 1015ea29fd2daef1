// LogReceiver: the receiving half of the log connection, and the threads that read it.
//
// At most one thread reads at a time. It holds the receiving role (ReceivingRole). A thread that
// waits for a reply takes the role, so that the reply wakes that thread directly. The receiver
// thread reads at other times, when the watch wakes it. What the holder has read and not handled
// yet passes to the next holder.
//
// Nothing here blocks except on the connection and in ReplyHandler.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <utility>

#include "base/brief_spin.h"
#include "base/deadline.h"
#include "base/status.h"
#include "client/process/thread.h"
#include "client/session/life_signs.h"
#include "client/session/receiving_role.h"
#include "client/session/reply_handler.h"
#include "client/session/session_shutdown.h"
#include "protocol/log/frame_reader.h"
#include "transport/transport.h"

namespace gpurun::client {

class LogReceiver {
 public:
  LogReceiver(transport::Connection& connection, ReplyHandler& handler, LifeSigns& life_signs,
              SessionShutdown& shutdown, const SessionOptions& options) noexcept
      : connection_(connection),
        handler_(handler),
        life_signs_(life_signs),
        shutdown_(shutdown),
        heartbeat_(options.heartbeat),
        spin_(options.spin) {}
  LogReceiver(const LogReceiver&) = delete;
  LogReceiver& operator=(const LogReceiver&) = delete;

  // Before start(). Without a watch the receiver thread reads everything, which is slower but
  // correct.
  void set_watch(std::unique_ptr<transport::Watch> watch) noexcept {
    role_.start(std::move(watch));
  }
  // nullptr: there is no watch.
  transport::Watch* watch() const noexcept { return role_.watch(); }
  // Starts the receiver thread. It ends with the connection.
  Status start();
  void join() noexcept { thread_.join(); }

  // For a waiting thread: takes the role if no thread has it. Then call receive_until().
  bool take_role() noexcept { return role_.take_from_watcher(); }
  // The receiver of a waiting thread that may have paused the watch.
  class Paused {
   public:
    Paused(LogReceiver& receiver, transport::WatchPause& pause) noexcept
        : receiver_(receiver), pause_(pause) {}

    // Takes the role if it is `wanted` and no thread has it. The pause ends in any case, because
    // the thread does not read without the role.
    bool take_role(bool wanted) noexcept {
      const bool taken = wanted && receiver_.take_role();
      pause_.end();
      return taken;
    }
    template <typename Done>
    void receive_until(Done done) {
      receiver_.receive_until(done);
    }

   private:
    LogReceiver& receiver_;
    transport::WatchPause& pause_;
  };
  // Receives and handles what comes until `done` returns true or the peer is gone, and gives the
  // role up. Polls for a moment, then sleeps. A failure ends the session.
  template <typename Done>
  void receive_until(Done done);

 private:
  using Clock = std::chrono::steady_clock;

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

  void run();
  // All below need the role.
  template <typename Done>
  Status poll_until(Done done);
  // Receives and handles what is there, without waiting. Then calls receive_held().
  Status receive_what_came();
  // Receives and handles what is there, as Connection::receive_some().
  Status receive_what_is_there(bool again);
  // Waits for more until `deadline`, and handles it. Passing the deadline is no failure unless the
  // peer was silent for too long.
  Status receive_more(Deadline deadline);
  // Call it after receiving, before the role is given up. Bytes that were taken from the connection
  // must be handled now, because no watch reports them.
  Status receive_held();
  Status heard(std::size_t bytes);
  Status handle_frames();

  transport::Connection& connection_;
  ReplyHandler& handler_;
  LifeSigns& life_signs_;
  SessionShutdown& shutdown_;
  const std::chrono::milliseconds heartbeat_;

  ReceivingRole role_;
  // For the receiving role.
  protocol::FrameReader reader_;
  BriefSpin spin_;  // For threads that wait, not for the receiver thread.
  Thread thread_;
};

template <typename Done>
void LogReceiver::receive_until(Done done) {
  const HeldRole held(role_);
  Status status = poll_until(done);
  if (status.ok()) status = receive_held();
  // While this thread has the role, no other thread can read on and find another reason first.
  if (!status.ok() && !shutdown_.ending()) shutdown_.die(std::move(status));
}

template <typename Done>
Status LogReceiver::poll_until(Done done) {
  Status status;
  const auto over = [&] { return !status.ok() || !shutdown_.alive() || done(); };
  bool again = false;
  const bool came = spin_.wait([&] {
    status = receive_what_is_there(std::exchange(again, true));
    return over();
  });
  if (came) return status;
  const Clock::time_point start = Clock::now();
  while (!over()) status = receive_more(Deadline::in(life_signs_.until_next_beat()));
  spin_.slept(Clock::now() - start);
  return status;
}

}  // namespace gpurun::client
