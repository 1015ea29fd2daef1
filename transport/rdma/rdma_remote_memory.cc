// RdmaCarrier as RemoteMemory: lent memory, and reads and writes of it.
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "transport/rdma/rdma_carrier.h"

namespace gpurun::transport::rdma {
namespace {

// Places among the requests that reads and writes leave to messages.
constexpr std::uint64_t kRequestsKeptByRemote = kSends / 2;
// A thread that waits for ends looks so often, whatever the device reports.
constexpr std::chrono::milliseconds kLook{100};

std::chrono::nanoseconds next_look(Deadline deadline) {
  return deadline.is_never() ? kLook
                             : std::min<std::chrono::nanoseconds>(kLook, deadline.remaining());
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

Result<std::uint32_t> RdmaCarrier::lend_for_writing(MutableBytes memory) {
  if (!works()) return Status(Code::kUnavailable, name_ + ": it has failed");
  if (!writes()) return Status(Code::kUnavailable, name_ + ": its devices do not write");
  const Result<RegionKeys> keys = pair_->lend_for_writing(memory.data(), memory.size());
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

Status RdmaCarrier::enroll_source(MutableBytes memory) {
  if (!works()) return Status(Code::kUnavailable, name_ + ": it has failed");
  const Result<RegionKeys> keys = pair_->enroll_source(memory.data(), memory.size());
  if (!keys.ok()) return keys.status();
  const std::lock_guard<std::mutex> lock(queue_);
  source_ = keys->local;
  return {};
}

void RdmaCarrier::withdraw(std::uint32_t* local_key) noexcept {
  std::uint32_t key = 0;
  {
    const std::lock_guard<std::mutex> lock(queue_);
    key = std::exchange(*local_key, 0);
  }
  if (key != 0) static_cast<void>(pair_->regions().remove_local(key));
}

Result<std::uint32_t> RdmaCarrier::enroll_device(const DeviceMemory& memory) {
  if (!works()) return Status(Code::kUnavailable, name_ + ": it has failed");
  const Result<RegionKeys> keys = pair_->enroll_device(memory);
  if (!keys.ok()) return keys.status();
  return keys->local;
}

bool RdmaCarrier::withdraw_device(std::uint32_t key) noexcept {
  return pair_->regions().remove_local(key);
}

bool RdmaCarrier::may_begin(const RemoteQueue& queue, std::size_t most) noexcept {
  const auto has_room = [&] {
    return queue.under_way() < most && requested_ - completed_ + kRequestsKeptByRemote < kSends;
  };
  if (!has_room()) heed_requests();
  return has_room();
}

void RdmaCarrier::has_begun(RemoteQueue& queue, std::uint64_t id) noexcept {
  ++requested_;
  silence_.will_report(requested_, completed_, Silence::Clock::now());
  queue.begin(requested_, id);
}

RemoteMemory::Began RdmaCarrier::begin_read(const Read& read) noexcept {
  const std::lock_guard<std::mutex> lock(queue_);
  const std::uint32_t into_key = read.into_key != 0 ? read.into_key : enrolled_;
  if (!works() || into_key == 0) return Began::kFailed;
  if (!may_begin(reads_, pair_->reads())) return Began::kLater;
  if (!pair_->read(read.into, into_key, read.from, read.key, read.bytes, requested_ + 1)) {
    failed_.store(true, std::memory_order_release);
    return Began::kFailed;
  }
  has_begun(reads_, read.id);
  return Began::kYes;
}

RemoteMemory::Began RdmaCarrier::begin_write(const Write& write) noexcept {
  const std::lock_guard<std::mutex> lock(queue_);
  if (!works() || !writes() || source_ == 0) return Began::kFailed;
  if (!may_begin(writes_, kSends)) return Began::kLater;
  if (!pair_->write(write.from, source_, write.to, write.key, write.bytes, requested_ + 1)) {
    failed_.store(true, std::memory_order_release);
    return Began::kFailed;
  }
  has_begun(writes_, write.id);
  return Began::kYes;
}

// One thread sleeps on the channel, and wakes the others whenever it has taken completions. Without
// that, it would take the event of a completion that another thread waits for.
void RdmaCarrier::sleep_for_ends(RemoteQueue& queue, std::uint64_t looks,
                                 Deadline deadline) noexcept {
  {
    std::unique_lock<std::mutex> lock(waiting_);
    if (one_sleeps_) {
      looked_.wait_for(lock, next_look(deadline), [&] { return looks_ != looks || !one_sleeps_; });
      return;
    }
    one_sleeps_ = true;
  }
  const auto has_looked = [this](bool sleeps) {
    {
      const std::lock_guard<std::mutex> lock(waiting_);
      ++looks_;
      one_sleeps_ = sleeps;
    }
    looked_.notify_all();
  };
  // A completion that came before the request for an event raises none, so the queue is looked at
  // behind it.
  if (!pair_->heed_requests_channel() || !pair_->arm_requests()) {
    failed_.store(true, std::memory_order_release);
  }
  bool ended = false;
  {
    const std::lock_guard<std::mutex> lock(queue_);
    heed_requests();
    ended = queue.has_ended();
  }
  has_looked(true);
  if (!ended) {
    pollfd channel = {pair_->requests_fd(), POLLIN, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_look(deadline));
    static_cast<void>(::poll(&channel, 1, static_cast<int>(left.count())));
  }
  has_looked(false);
}

// Any thread may have taken the completion from the device's queue.
std::size_t RdmaCarrier::await_ended(RemoteQueue& queue, std::span<Ended> ended,
                                     Deadline deadline) noexcept {
  for (;;) {
    std::uint64_t looks = 0;
    {
      const std::lock_guard<std::mutex> lock(waiting_);
      looks = looks_;
    }
    {
      const std::lock_guard<std::mutex> lock(queue_);
      heed_requests();
      if (queue.has_ended()) return queue.take(ended);
    }
    if (deadline.passed()) return 0;
    sleep_for_ends(queue, looks, deadline);
  }
}

void RdmaCarrier::give_up() noexcept {
  failed_.store(true, std::memory_order_release);
  pair_->give_up();
}

}  // namespace gpurun::transport::rdma
