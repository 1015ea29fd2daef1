// Ring: a byte queue from one process to another, in memory that both map.
//
// One end writes and the other end reads. Each end keeps its own position in private memory, and
// accepts the other end's position only when it is possible. The reader copies bytes out before it
// decodes them, because the other end may change the ring at any time.
//
// An end that waits first sets a word, which the other end checks after each step. A sleeping
// reader is then woken by other means (transport/shm/connection.h). A writer sleeps at its word,
// which is a futex (futex(2)).
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"

namespace gpurun::transport::shm {

// Shared. Each word has a cache line of its own: one end writes it and the other end reads it.
struct RingState {
  alignas(64) std::atomic<std::uint64_t> written;  // Total bytes since the start.
  alignas(64) std::atomic<std::uint64_t> read;
  alignas(64) std::atomic<std::uint32_t> reader_sleeps;
  alignas(64) std::atomic<std::uint32_t> writer_sleeps;  // A futex.
  alignas(64) std::atomic<std::uint32_t> closed;         // Set by either end, for good.
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "it is shared between processes");
static_assert(sizeof(std::atomic<std::uint32_t>) == 4, "a futex is a 32-bit word");

// A writer publishes after this many bytes, so that the reader copies them while it copies the
// next.
inline constexpr std::size_t kStepBytes = std::size_t{64} << 10;

// Where a ring is in memory. `bytes` is a power of two.
struct Ring {
  RingState* state = nullptr;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

class RingWriter {
 public:
  explicit RingWriter(const Ring& ring) noexcept : ring_(ring) {}

  // Bytes that can be put now. Empty: the reader's published position is impossible.
  std::optional<std::size_t> room() noexcept;
  // Puts at most room() bytes. The reader does not see them before publish().
  void put(ByteView bytes) noexcept;
  void publish() noexcept;
  // True when the reader sleeps and this call is the one that must wake it.
  bool has_to_wake() noexcept;
  // Returns when is_closed(), when `wanted` is not 0, after wake(), or after `span`, and when half
  // of the ring is free if `for_room`. May return spuriously. Call wake() after a change of
  // `wanted`.
  void sleep(std::chrono::nanoseconds span, const std::atomic<unsigned>& wanted,
             bool for_room) noexcept;
  // Any thread.
  void wake() const noexcept;
  std::uint64_t written() const noexcept { return written_; }
  // Finds the bytes that were put since the first `taken` of all. False: the ring does not hold
  // them.
  bool find_untaken(std::uint64_t taken, std::array<ByteView, 2>* untaken) const noexcept;

 private:
  const Ring ring_;
  std::uint64_t written_ = 0;
  std::uint64_t read_ = 0;  // As last seen.
};

class RingReader {
 public:
  explicit RingReader(const Ring& ring) noexcept : ring_(ring) {}

  // Copies what has come, as much as fits, and returns how many bytes. Empty: the writer's
  // published position is impossible.
  std::optional<std::size_t> take(MutableBytes into) noexcept;
  // True when there is something to take, or the writer's position is impossible. Any thread, also
  // during take().
  bool has_bytes() const noexcept;
  std::uint64_t read() const noexcept { return read_.load(std::memory_order_relaxed); }
  // Goes on behind the first `written` bytes of all. False: the ring cannot hold those between.
  bool skip_to(std::uint64_t written) noexcept;

  // Asks the writer to wake this reader after it has written. Call has_bytes() again afterwards.
  // Returns the previous value of the word.
  bool announce_sleep() noexcept { return ring_.state->reader_sleeps.exchange(1) != 0; }
  bool announce_wake() noexcept { return ring_.state->reader_sleeps.exchange(0) != 0; }
  bool sleep_is_announced() const noexcept { return ring_.state->reader_sleeps.load() != 0; }

 private:
  void publish(std::uint64_t read) noexcept;

  const Ring ring_;
  std::atomic<std::uint64_t> read_{0};
  std::uint64_t written_ = 0;  // As last seen.
};

inline bool is_closed(const Ring& ring) noexcept { return ring.state->closed.load() != 0; }
// Also wakes a sleeping writer. Any thread, either end, any number of times.
void close(const Ring& ring) noexcept;

}  // namespace gpurun::transport::shm
