// LaneReplies: the replies that the lanes of one session wait for, and how their threads wait.
//
// A lane waits for one reply at a time. It is noted in the lane before the call is committed, so
// that the reply cannot come first. A reply counts once the bulk bytes that it reports have arrived
// too: see completions().
//
// The lane's mutex guards what a lane waits for. Only this class and the registry of lanes lock it.
// The receiving role is taken under it, which never waits. wait_for() calls `look` under it, which
// may ask DeferredErrors.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/status.h"
#include "client/log/lane.h"
#include "protocol/log/record.h"

namespace gpurun::client {

class LaneReplies {
 public:
  // `serial`: the session's number. It is never reused, unlike the address, because a lane may
  // outlive a session.
  explicit LaneReplies(std::uint64_t serial) noexcept : serial_(serial) {}
  LaneReplies(const LaneReplies&) = delete;
  LaneReplies& operator=(const LaneReplies&) = delete;

  std::uint64_t serial() const noexcept { return serial_; }

  // `lane` waits for the reply to `sequence` from now on. `came`: EventCompletions::came(). Call it
  // before the commit.
  void expect(Lane& lane, std::uint64_t sequence, std::uint64_t came);

  // What a waiting thread still lacks.
  enum class WaitState : std::uint8_t {
    kNothing,
    kNews,   // A reply on the log, which the waiting thread may read itself.
    kBytes,  // Bytes from elsewhere, which completed_through() reports.
  };
  // Waits until `look` returns kNothing. It is called under the lane's mutex. The thread reads the
  // log by `receiver` (LogReceiver::Paused) when no other thread does. No deadline: kernels may run
  // for hours. The reading thread's silence deadline bounds it.
  template <typename Receiver, typename Look>
  void wait_for(Lane& lane, Receiver& receiver, Look look);
  // For such a `look`: what the lane's reply lacks. kNothing: `*answered`, or the peer is gone. The
  // lane then waits for nothing, so no other thread writes to it any more.
  WaitState lacks_reply(Lane& lane, bool peer_lives, bool* answered) noexcept;

  // The rest is for the thread that reads the log, unless it says otherwise.

  // Hands a reply to its lane. kProtocol: no thread waits for it.
  Status answer(const protocol::ReplyView& item);
  // Returns how many calls up to `taken` have lanes that wait for their replies.
  std::uint64_t count_awaited(std::uint64_t taken) const;

  // Transfers from the worker that have arrived whole: 1 to this number. Any thread.
  std::uint64_t completions() const noexcept {
    return completions_.load(std::memory_order_acquire);
  }
  // Bulk calls it, on one or several connections at once. The highest number counts.
  void completed_through(std::uint64_t number);

  // Any thread. Wakes all waiting threads, which look again.
  void wake_all();
  // As wake_all(), if a thread waits for an event.
  void wake_event_waiters() {
    // Adds 0, because only a read-modify-write is ordered after what was just noted.
    if (event_waiters_.fetch_add(0, std::memory_order_acq_rel) != 0) wake_all();
  }
  // Around the wait for an event, on any thread. Begin before the check that decides: the receiving
  // thread first notes, then reads the count.
  void begin_event_wait() noexcept { event_waiters_.fetch_add(1, std::memory_order_acq_rel); }
  void end_event_wait() noexcept { event_waiters_.fetch_sub(1, std::memory_order_acq_rel); }

 private:
  const std::uint64_t serial_;
  std::atomic<std::uint32_t> event_waiters_{0};
  std::atomic<std::uint64_t> completions_{0};
};

template <typename Receiver, typename Look>
void LaneReplies::wait_for(Lane& lane, Receiver& receiver, Look look) {
  for (;;) {
    {
      std::unique_lock<std::mutex> lock(lane.mutex_);
      const WaitState lacking = look();
      if (lacking == WaitState::kNothing) return;
      if (!receiver.take_role(lacking == WaitState::kNews)) {
        lane.arrived_.wait(lock);
        continue;
      }
    }
    receiver.receive_until([&] {
      const std::lock_guard<std::mutex> lock(lane.mutex_);
      return look() != WaitState::kNews;
    });
  }
}

}  // namespace gpurun::client
