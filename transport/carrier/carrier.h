// Carrier: moves the bytes of a connection beside the socket that the ends already have. Memory
// that both ends map is one (transport/shm).
//
// Each end counts the bytes that it has put, and those that it has taken, since the carrier was
// made. A carrier keeps the bytes that the other end has not taken yet. So an end that leaves the
// carrier says how many bytes it has taken, and the other end sends the rest over the socket
// (connection.h).
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/deadline.h"
#include "base/result.h"
#include "transport/part_cursor.h"
#include "transport/remote_memory.h"

namespace gpurun::transport::carrier {

// What a step found.
enum class Found : std::uint8_t {
  kWorks,
  kFailed,  // The carrier moves nothing any more. The connection goes on over its socket.
  kBroken,  // The other end has written what is impossible. The connection ends.
};

// Bytes that were moved, and what was found while moving them.
struct Moved {
  std::size_t bytes = 0;
  Found found = Found::kWorks;
};

// The sender calls the first group, and the receiver the second. There is one of each at a time.
class Carrier {
 public:
  Carrier() = default;
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;
  virtual ~Carrier() = default;

  // For messages: "shared memory".
  virtual const char* name() const noexcept = 0;
  // For messages: why it has failed. Empty: it has not, or nothing is known. Any thread.
  virtual std::string why_failed() const { return {}; }
  // A descriptor that becomes readable when something has come, while a receiver has said that it
  // sleeps. -1: the other end sends kWake over the socket.
  virtual int fd() const noexcept { return -1; }

  // nullptr: its devices read no memory of the other end.
  virtual RemoteMemory* remote_memory() noexcept { return nullptr; }

  // Puts as much as fits now, at most a step. No bytes: the carrier is full.
  virtual Moved put(PartCursor& cursor) = 0;
  // True when the other end's receiver sleeps, and the caller is the one that must wake it.
  virtual bool has_to_wake() noexcept = 0;
  // Returns when `wanted` is not 0, after wake_sender(), or after `span`, and when there is room if
  // `for_room`. May return spuriously. A change of `wanted` is noticed behind wake_sender() alone.
  virtual void sleep_as_sender(std::chrono::nanoseconds span, const std::atomic<unsigned>& wanted,
                               bool for_room) noexcept = 0;
  // True when put() would find no room.
  virtual bool is_full() noexcept = 0;
  virtual std::uint64_t bytes_put() const noexcept = 0;
  // Finds the bytes that were put since the first `taken`. They stay unchanged until the next
  // put(). False: the other end cannot have taken just so many.
  virtual bool find_untaken(std::uint64_t taken, std::array<ByteView, 2>* untaken) noexcept = 0;
  // Waits until what was put has reached the other end's memory, or cannot any more. Nothing is put
  // afterwards.
  virtual void finish(Deadline deadline) noexcept { static_cast<void>(deadline); }

  // Copies what has come, as much as fits. After kFailed, what had come before can still be taken.
  virtual Moved take(MutableBytes into) noexcept = 0;
  virtual std::uint64_t bytes_taken() const noexcept = 0;
  // Goes on behind the other end's first `put` bytes. False: it cannot have put just so many.
  virtual bool skip_to(std::uint64_t put) noexcept = 0;
  // True when take() would find something. Any thread, also during take().
  virtual bool has_bytes() const noexcept = 0;
  // Asks the other end to wake this one over the socket once it has put bytes, and takes that back.
  // Both return whether it was asked before. Call has_bytes() again behind announce_sleep().
  virtual bool announce_sleep() noexcept = 0;
  virtual bool announce_wake() noexcept = 0;
  // False once the other end has taken the request, and sends what wakes this one.
  virtual bool sleep_is_announced() const noexcept = 0;
  // The socket has ended. Waits, for a twentieth of a second at most, for what the other end has
  // put and what is still under way.
  virtual void await_rest() noexcept {}

  // Any thread, any number of times.
  virtual void wake_sender() noexcept = 0;
  // Marks both directions as ended. Bytes that were put before can still be taken.
  virtual void close() noexcept = 0;
  // Whether either end has closed that direction.
  virtual bool is_closed_out() const noexcept = 0;
  virtual bool is_closed_in() const noexcept = 0;
};

}  // namespace gpurun::transport::carrier
