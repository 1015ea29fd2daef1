// NoCarrier: the carrier of a connection that stays with its socket, because this end's carrier was
// not made and the other end does not know that.
#pragma once

#include <thread>

#include "transport/carrier/carrier.h"

namespace gpurun::transport::carrier {

class NoCarrier final : public Carrier {
 public:
  const char* name() const noexcept override { return "no carrier"; }
  Moved put(PartCursor&) override { return {0, Found::kFailed}; }
  bool has_to_wake() noexcept override { return false; }
  void sleep_as_sender(std::chrono::nanoseconds span, const std::atomic<unsigned>& wanted,
                       bool) noexcept override {
    const Deadline deadline = Deadline::in(span);
    while (wanted.load() == 0 && !deadline.passed()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  bool is_full() noexcept override { return false; }
  std::uint64_t bytes_put() const noexcept override { return 0; }
  bool find_untaken(std::uint64_t taken, std::array<ByteView, 2>* untaken) noexcept override {
    *untaken = {};
    return taken == 0;
  }
  Moved take(MutableBytes) noexcept override { return {0, Found::kFailed}; }
  std::uint64_t bytes_taken() const noexcept override { return 0; }
  bool skip_to(std::uint64_t put) noexcept override { return put == 0; }
  bool has_bytes() const noexcept override { return false; }
  bool announce_sleep() noexcept override { return true; }
  bool announce_wake() noexcept override { return true; }
  bool sleep_is_announced() const noexcept override { return true; }
  void wake_sender() noexcept override {}
  void close() noexcept override {}
  bool is_closed_out() const noexcept override { return false; }
  bool is_closed_in() const noexcept override { return false; }
};

}  // namespace gpurun::transport::carrier
