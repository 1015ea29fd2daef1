// RdmaCarrier as RemoteMemory: lent memory, and reads of it.
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "transport/rdma/rdma_carrier.h"

namespace gpurun::transport::rdma {
namespace {

// Places among the requests that reads leave to messages.
constexpr std::uint64_t kRequestsKeptByReads = kSends / 2;
// A thread that waits for reads looks so often, whatever the device reports.
constexpr std::chrono::milliseconds kLook{100};

int milliseconds_of(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(
      deadline.is_never() ? kLook
                          : std::min<std::chrono::nanoseconds>(kLook, deadline.remaining()));
  return static_cast<int>(left.count());
}

}  // namespace

Result<std::uint32_t> RdmaCarrier::lend(ByteView memory) {
  if (!works()) return Status(Code::kUnavailable, name_ + ": it has failed");
  // The other end gets no right to write, and the device writes nothing there by itself.
  auto* const start = const_cast<std::byte*>(memory.data());
  const Result<RegionKeys> keys = pair_->lend(start, memory.size());
  if (!keys.ok()) return keys.status();
  return keys->remote;
}

void RdmaCarrier::take_back(std::uint32_t key) noexcept { pair_->regions().remove_remote(key); }

Status RdmaCarrier::enroll(MutableBytes memory) {
  if (!works()) return Status(Code::kUnavailable, name_ + ": it has failed");
  const Result<RegionKeys> keys = pair_->enroll(memory.data(), memory.size());
  if (!keys.ok()) return keys.status();
  const std::lock_guard<std::mutex> lock(queue_);
  enrolled_ = keys->local;
  return {};
}

void RdmaCarrier::withdraw() noexcept {
  std::uint32_t key = 0;
  {
    const std::lock_guard<std::mutex> lock(queue_);
    key = std::exchange(enrolled_, 0);
  }
  if (key != 0) pair_->regions().remove_local(key);
}

RemoteMemory::Began RdmaCarrier::begin_read(const Read& read) noexcept {
  const std::lock_guard<std::mutex> lock(queue_);
  if (!works() || enrolled_ == 0) return Began::kFailed;
  const auto has_room = [this] {
    return reads_.under_way() < pair_->reads() &&
           requested_ - completed_ + kRequestsKeptByReads < kSends;
  };
  if (!has_room()) heed_requests();
  if (!has_room()) return Began::kLater;
  const std::uint64_t number = requested_ + 1;
  if (!pair_->read(read.into, enrolled_, read.from, read.key, read.bytes, number)) {
    failed_.store(true, std::memory_order_release);
    return Began::kFailed;
  }
  requested_ = number;
  silence_.will_report(number, completed_, Silence::Clock::now());
  reads_.begin(number, read.id);
  return Began::kYes;
}

// A completion that came before the request for an event raises none, so the queue is looked at
// behind it. Another thread may have taken the completion from the queue meanwhile.
std::size_t RdmaCarrier::await_reads(std::span<Ended> ended, Deadline deadline) noexcept {
  for (;;) {
    if (!pair_->heed_requests_channel() || !pair_->arm_requests()) {
      failed_.store(true, std::memory_order_release);
    }
    {
      const std::lock_guard<std::mutex> lock(queue_);
      heed_requests();
      if (reads_.has_ended()) return reads_.take(ended);
    }
    if (deadline.passed()) return 0;
    pollfd channel = {pair_->requests_fd(), POLLIN, 0};
    static_cast<void>(::poll(&channel, 1, milliseconds_of(deadline)));
  }
}

void RdmaCarrier::give_up() noexcept {
  failed_.store(true, std::memory_order_release);
  pair_->give_up();
}

}  // namespace gpurun::transport::rdma
