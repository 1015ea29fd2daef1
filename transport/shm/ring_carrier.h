// RingCarrier: the carrier of a connection in shared memory, two rings that both processes map.
#pragma once

#include "transport/carrier/carrier.h"
#include "transport/shm/memory.h"

namespace gpurun::transport::shm {

enum class Side : std::uint8_t { kOffered, kTook };

class RingCarrier final : public carrier::Carrier {
 public:
  RingCarrier(SharedMemory memory, Side side) noexcept;

  const char* name() const noexcept override { return "shared memory"; }

  carrier::Moved put(PartCursor& cursor) override;
  bool has_to_wake() noexcept override { return writer_.has_to_wake(); }
  void sleep_as_sender(std::chrono::nanoseconds span, const std::atomic<unsigned>& wanted,
                       bool for_room) noexcept override {
    writer_.sleep(span, wanted, for_room);
  }
  bool is_full() noexcept override { return writer_.room() == std::optional<std::size_t>(0); }
  std::uint64_t bytes_put() const noexcept override { return writer_.written(); }
  bool find_untaken(std::uint64_t taken, std::array<ByteView, 2>* untaken) noexcept override {
    return writer_.find_untaken(taken, untaken);
  }

  carrier::Moved take(MutableBytes into) noexcept override;
  std::uint64_t bytes_taken() const noexcept override { return reader_.read(); }
  bool skip_to(std::uint64_t put) noexcept override { return reader_.skip_to(put); }
  bool has_bytes() const noexcept override { return reader_.has_bytes(); }
  bool announce_sleep() noexcept override { return reader_.announce_sleep(); }
  bool announce_wake() noexcept override { return reader_.announce_wake(); }
  bool sleep_is_announced() const noexcept override { return reader_.sleep_is_announced(); }

  void wake_sender() noexcept override { writer_.wake(); }
  void close() noexcept override;
  bool is_closed_out() const noexcept override { return is_closed(out_ring_); }
  bool is_closed_in() const noexcept override { return is_closed(in_ring_); }

 private:
  const SharedMemory memory_;
  const Ring out_ring_;
  const Ring in_ring_;
  RingWriter writer_;
  RingReader reader_;
};

}  // namespace gpurun::transport::shm
