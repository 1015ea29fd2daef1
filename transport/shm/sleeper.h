// Sleeper: how the reader of a ring sleeps.
//
// The reader sets the word reader_sleeps in the ring. The writer that clears it sends one byte over
// the socket, once for each sleep. A Sleeper counts these bytes, so that none stays in the socket
// and wakes a thread for nothing.
//
// The receiving thread uses it. The watcher uses it while no thread receives.
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

  // Returns true when there is no reason to sleep: bytes have come, or the end.
  bool go_to_sleep() noexcept {
    note(reader_.say_asleep(), true);
    return reader_.has_bytes() || is_closed(ring_);
  }
  void wake_up() noexcept { note(reader_.say_awake(), false); }

  // True from go_to_sleep() until wake_up().
  bool is_asleep() const noexcept { return said_.load(std::memory_order_relaxed); }

  // `bytes` wake-up bytes have come over the socket.
  void heard(std::size_t bytes) noexcept {
    owed_.fetch_sub(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
  }
  // True when wake-up bytes are in the socket, or will be soon, for a sleep that is over.
  bool is_owed() const noexcept {
    const bool taken = said_.load(std::memory_order_relaxed) && !reader_.is_said_asleep();
    return owed_.load(std::memory_order_relaxed) + (taken ? 1 : 0) > 0;
  }

 private:
  void note(bool was_asleep, bool asleep) noexcept {
    // The writer has cleared the word, so it sends a byte for it.
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
