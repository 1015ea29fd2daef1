// FailingCarrier: a carrier that fails behind a number of bytes in each direction.
#pragma once

#include <memory>
#include <utility>

#include "transport/carrier/carrier.h"

namespace gpurun::transport::test {

class FailingCarrier : public carrier::Carrier {
 public:
  // Puts fail behind `puts` bytes or a little more. Takes report a failure once, behind `takes`.
  FailingCarrier(std::unique_ptr<Carrier> inner, std::size_t puts, std::size_t takes)
      : inner_(std::move(inner)), puts_(puts), takes_(takes) {}

  const char* name() const noexcept override { return inner_->name(); }
  int fd() const noexcept override { return inner_->fd(); }
  RemoteMemory* remote_memory() noexcept override { return inner_->remote_memory(); }
  carrier::Moved put(PartCursor& cursor) override {
    if (inner_->bytes_put() >= puts_) return {0, carrier::Found::kFailed};
    return inner_->put(cursor);
  }
  bool has_to_wake() noexcept override { return inner_->has_to_wake(); }
  void sleep_as_sender(std::chrono::nanoseconds span, const std::atomic<unsigned>& wanted,
                       bool for_room) noexcept override {
    inner_->sleep_as_sender(span, wanted, for_room);
  }
  bool is_full() noexcept override { return inner_->is_full(); }
  std::uint64_t bytes_put() const noexcept override { return inner_->bytes_put(); }
  bool find_untaken(std::uint64_t taken, std::array<ByteView, 2>* untaken) noexcept override {
    return inner_->find_untaken(taken, untaken);
  }
  void finish(Deadline deadline) noexcept override { inner_->finish(deadline); }
  carrier::Moved take(MutableBytes into) noexcept override {
    const std::uint64_t taken = inner_->bytes_taken();
    if (failed_) return inner_->take(into);
    failed_ = taken >= takes_;
    if (failed_) return {0, carrier::Found::kFailed};
    return inner_->take(
        into.first(std::min(into.size(), static_cast<std::size_t>(takes_ - taken))));
  }
  std::uint64_t bytes_taken() const noexcept override { return inner_->bytes_taken(); }
  bool skip_to(std::uint64_t put) noexcept override { return inner_->skip_to(put); }
  bool has_bytes() const noexcept override { return inner_->has_bytes(); }
  bool announce_sleep() noexcept override { return inner_->announce_sleep(); }
  bool announce_wake() noexcept override { return inner_->announce_wake(); }
  bool sleep_is_announced() const noexcept override { return inner_->sleep_is_announced(); }
  void await_rest() noexcept override { inner_->await_rest(); }
  void wake_sender() noexcept override { inner_->wake_sender(); }
  void close() noexcept override { inner_->close(); }
  bool is_closed_out() const noexcept override { return inner_->is_closed_out(); }
  bool is_closed_in() const noexcept override { return inner_->is_closed_in(); }

 private:
  const std::unique_ptr<Carrier> inner_;
  const std::size_t puts_;
  const std::size_t takes_;
  bool failed_ = false;
};

}  // namespace gpurun::transport::test
