// Duties: what a change asks of the sender. The receiver and the owner note a duty, and the sender
// does it. Any thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace gpurun::transport::carrier {

enum Duty : unsigned {
  kSendWake = 1,
  kSendAsk = 2,
  kSendAnswer = 4,
  kSendLeave = 8,  // This end's receiver has left: `leave`.
  kResend = 16,    // The other end's receiver has left: `their_leave`.
  kDoEnter = 32,
  kFlush = 64,  // The socket had no room for all that was sent, and no thread sends.
};

struct Leave {
  std::uint32_t entry = 0;
  std::uint64_t taken = 0;
};

class Duties {
 public:
  // Sequentially consistent: the sender says that it sleeps and then looks here. The caller adds a
  // duty and then looks whether the sender sleeps.
  void add(unsigned duties) noexcept { bits_.fetch_or(duties); }
  void remove(unsigned duties) noexcept { bits_.fetch_and(~duties, std::memory_order_release); }
  unsigned all() const noexcept { return bits_.load(std::memory_order_acquire); }
  bool has(unsigned duties) const noexcept { return (all() & duties) != 0; }
  bool any() const noexcept { return all() != 0; }
  const std::atomic<unsigned>& word() const noexcept { return bits_; }

  // The receiver writes it before kSendLeave, and the sender reads it behind.
  Leave leave;
  // The same with kResend.
  Leave their_leave;

 private:
  std::atomic<unsigned> bits_{0};
};

}  // namespace gpurun::transport::carrier
