// Sleeper: how a reader of a ring sleeps. It says so in the ring; the writer that has read that
// sends a byte over the socket, one for each time. Counts them, so that none is left there to wake
// somebody for nothing.
//
// Used by the thread that receives, and by the watcher while nobody receives.
#pragma once

#include <atomic>
#include <cstdint>

#include "transport/shm/ring.h"

namespace gpurun::transport::shm {

class Sleeper {
 public:
  Sleeper(RingReader& reader, const Ring& ring) noexcept : reader_(reader), ring_(ring) {}
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  // True: there is nothing to sleep for, bytes are there or the end.
  bool go_to_sleep() noexcept {
    note(reader_.say_asleep(), true);
    return reader_.has_bytes() || is_closed(ring_);
  }
  void wake_up() noexcept { note(reader_.say_awake(), false); }

  // Nobody has said that he is awake again.
  bool is_asleep() const noexcept { return said_.load(std::memory_order_relaxed); }

  // So many bytes have come over the socket.
  void heard(std::size_t bytes) noexcept {
    owed_.fetch_sub(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
  }
  // Bytes are there or will be soon, for which nobody sleeps any more.
  bool is_owed() const noexcept {
    const bool taken = said_.load(std::memory_order_relaxed) && !reader_.is_said_asleep();
    return owed_.load(std::memory_order_relaxed) + (taken ? 1 : 0) > 0;
  }

 private:
  void note(bool was_asleep, bool asleep) noexcept {
    // Somebody else has taken the word: he sends a byte for it.
    if (said_.exchange(asleep, std::memory_order_relaxed) && !was_asleep) {
      owed_.fetch_add(1, std::memory_order_relaxed);
    }
  }

  RingReader& reader_;
  const Ring ring_;
  std::atomic<bool> said_{false};
  std::atomic<std::int64_t> owed_{0};
};

}  // namespace gpurun::transport::shm
