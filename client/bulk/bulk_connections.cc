// Bulk, number of connections: which ones join, and how many share the bytes.
#include <algorithm>
#include <utility>

#include "client/bulk/bulk.h"

namespace gpurun::client {

Status Bulk::start_channel(Channel& channel) {
  GPURUN_RETURN_IF_ERROR(channel.sender.start(
      "gpurun-bulk-out",
      [](void* of) -> void* {
        static_cast<Channel*>(of)->bulk->run_sender(*static_cast<Channel*>(of));
        return nullptr;
      },
      &channel));
  return channel.receiver.start(
      "gpurun-bulk-in",
      [](void* of) -> void* {
        static_cast<Channel*>(of)->bulk->run_receiver(*static_cast<Channel*>(of));
        return nullptr;
      },
      &channel);
}

// With the lock held, as most of these.
unsigned Bulk::most_wanted() const noexcept {
  return std::max(count_ ? count_->wanted() : 0, count_out_ ? count_out_->wanted() : 0);
}

bool Bulk::in_use(const Channel& channel) const noexcept { return channel.index < used_; }

void Bulk::note_sent(const Outgoing& out, std::uint64_t bytes) {
  if (!count_ || out.source.size() < ConnectionCount::kTransferBytesMin) return;
  count_->sent(ConnectionCount::Clock::now(), bytes);
}

void Bulk::note_retired(const Outgoing& out, std::uint64_t bytes) {
  if (!count_ || bytes == 0 || out.source.size() < ConnectionCount::kTransferBytesMin) return;
  count_->retired(ConnectionCount::Clock::now(), bytes);
  note_counts();
  note_lack();
}

void Bulk::note_lack() {
  if (most_wanted() > asked_for_) lacks_.store(true, std::memory_order_relaxed);
}

unsigned Bulk::note_expected(Incoming& in) {
  if (!known_.spread_copies || in.total < ConnectionCount::kTransferBytesMin) return 0;
  if (!count_out_) return open_;
  in.counted = true;
  count_out_->sent(ConnectionCount::Clock::now(), in.total);
  return count_out_->in_use();
}

void Bulk::note_received(const Incoming& in, std::uint64_t bytes) {
  if (!in.counted) return;
  count_out_->retired(ConnectionCount::Clock::now(), bytes);
  note_lack();
}

// Puts as many senders to work as the count gives. Each sender checks by itself.
void Bulk::note_counts() {
  if (count_->in_use() == used_) return;
  used_ = count_->in_use();
  unused_.notify_all();
  to_send_.notify_all();
}

// Without the lock, because it calls the listener.
void Bulk::ask_for_more() {
  if (!lacks_.load(std::memory_order_relaxed)) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    lacks_.store(false, std::memory_order_relaxed);
    if (!may_join_ || ended_ || most_wanted() <= asked_for_) return;
    asked_for_ = most_wanted();
  }
  if (listener_.wants_more != nullptr) listener_.wants_more(listener_.user);
}

unsigned Bulk::wanted() const noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return may_join_ && !ended_ ? std::max(most_wanted(), open_) : open_;
}

unsigned Bulk::open() const noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return open_;
}

Bulk::Used Bulk::used() const noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {used_, count_ ? count_->tried_most() : open_};
}

Bulk::Used Bulk::used_from_device() const noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!known_.spread_copies) return {1, 1};
  if (!count_out_) return {open_, open_};
  return {count_out_->in_use(), count_out_->tried_most()};
}

void Bulk::not_opened(ConnectionCount::Time now) {
  if (count_->wanted() > open_) count_->not_opened(now);
  if (count_out_ && count_out_->wanted() > open_) count_out_->not_opened(now);
}

void Bulk::add(std::unique_ptr<transport::Connection> connection, unsigned their_cores) {
  Channel* channel = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    channels_.push_back(
        std::make_unique<Channel>(this, connection.get(), known_.packed_chunks, channels_.size()));
    channel = channels_.back().get();
    channel->owned = std::move(connection);
    if (ended_) return channel->owned->shut_down();
  }
  const bool started = start_channel(*channel).ok();
  const std::lock_guard<std::mutex> lock(mutex_);
  const ConnectionCount::Time now = ConnectionCount::Clock::now();
  if (!started) {
    may_join_ = false;  // Its place is used up, so no other may join.
    return not_opened(now);
  }
  ++open_;
  count_->opened(now, open_, their_cores);
  if (count_out_) count_out_->opened(now, open_, their_cores);
  note_counts();
}

void Bulk::cannot_add() {
  const std::lock_guard<std::mutex> lock(mutex_);
  not_opened(ConnectionCount::Clock::now());
  asked_for_ = open_;
}

}  // namespace gpurun::client
