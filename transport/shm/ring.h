// Ring: bytes on their way from one process to another through memory that both map.
//
// One end writes, the other reads; each keeps its own place in memory of its own, and believes what
// the other says of its place only as far as it can be true. What is copied out is the reader's, so
// that nobody decodes what the other end may still change.
//
// Who waits says so first, in a word that the other end looks at after each step: a reader is then
// to be woken by other means (transport/shm/connection.h), a writer sleeps at that word (futex(2)).
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"

namespace gpurun::transport::shm {

// Shared. Each word in a line of its own: one end writes it, the other looks at it.
struct RingState {
  alignas(64) std::atomic<std::uint64_t> written;  // Bytes, ever.
  alignas(64) std::atomic<std::uint64_t> read;
  alignas(64) std::atomic<std::uint32_t> reader_sleeps;
  alignas(64) std::atomic<std::uint32_t> writer_sleeps;  // A futex.
  alignas(64) std::atomic<std::uint32_t> closed;         // By either end; for good.
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "it is shared between processes");
static_assert(sizeof(std::atomic<std::uint32_t>) == 4, "a futex is a 32-bit word");

// So many bytes go before the other end may have them: it copies some while the next are copied.
inline constexpr std::size_t kStepBytes = std::size_t{64} << 10;

// Where a ring lies. `bytes` is a power of two.
struct Ring {
  RingState* state = nullptr;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

class RingWriter {
 public:
  explicit RingWriter(const Ring& ring) noexcept : ring_(ring) {}

  // Bytes that can be put now. Empty: the other end says what cannot be.
  std::optional<std::size_t> room() noexcept;
  // At most room(). Nobody sees it before publish().
  void put(ByteView bytes) noexcept;
  void publish() noexcept;
  // True: the reader sleeps, and it is this call after which it has to be woken.
  bool has_to_wake() noexcept;
  // Returns when half of the ring is free, is_closed(), or after `span`; also for no reason.
  void sleep(std::chrono::nanoseconds span) noexcept;

 private:
  const Ring ring_;
  std::uint64_t written_ = 0;
  std::uint64_t read_ = 0;  // As last seen.
};

class RingReader {
 public:
  explicit RingReader(const Ring& ring) noexcept : ring_(ring) {}

  // Copies what there is, as much as fits; how much. Empty: the other end says what cannot be.
  std::optional<std::size_t> take(MutableBytes into) noexcept;
  // Something can be taken, or the other end lies. Any thread, beside take() as well.
  bool has_bytes() const noexcept;

  // The writer is to wake us once it has written; then look at has_bytes() again. Returns what the
  // word was.
  bool say_asleep() noexcept { return ring_.state->reader_sleeps.exchange(1) != 0; }
  bool say_awake() noexcept { return ring_.state->reader_sleeps.exchange(0) != 0; }
  bool is_said_asleep() const noexcept { return ring_.state->reader_sleeps.load() != 0; }

 private:
  void publish(std::uint64_t read) noexcept;

  const Ring ring_;
  std::atomic<std::uint64_t> read_{0};
  std::uint64_t written_ = 0;  // As last seen.
};

inline bool is_closed(const Ring& ring) noexcept { return ring.state->closed.load() != 0; }
// Wakes a sleeping writer. Any thread, either end, any number of times.
void close(const Ring& ring) noexcept;

}  // namespace gpurun::transport::shm
