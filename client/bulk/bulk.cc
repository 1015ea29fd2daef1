// Bulk: its start and end, and the connections that join.
#include "client/bulk/bulk.h"

#include <utility>

namespace gpurun::client {

Bulk::Bulk(std::vector<transport::Connection*> connections, Listener listener, Known known,
           std::optional<ConnectionCount::Bounds> bounds)
    : listener_(listener),
      known_(known),
      in_memory_(connections.front()->capabilities().shares_memory),
      use_(static_cast<unsigned>(connections.size()), known.spread_copies, bounds) {
  for (transport::Connection* connection : connections) {
    channels_.push_back(
        std::make_unique<Channel>(this, connection, known.packed_chunks, channels_.size()));
  }
}

Status Bulk::start() {
  GPURUN_RETURN_IF_ERROR(window_.map());
  for (auto& channel : channels_) GPURUN_RETURN_IF_ERROR(channel->start());
  return {};
}

void Bulk::end() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  ended_ = true;
  for (auto& channel : channels_) {
    if (channel->owned != nullptr) channel->owned->shut_down();
  }
  to_send_.notify_all();
  unused_.notify_all();
  room_.notify_all();
  read_.notify_all();
  completed_.notify_all();
}

void Bulk::join() noexcept {
  for (auto& channel : channels_) channel->join();
}

Status Bulk::Channel::start() {
  GPURUN_RETURN_IF_ERROR(sender.start(
      "gpurun-bulk-out",
      [](void* of) -> void* {
        static_cast<Channel*>(of)->bulk->run_sender(*static_cast<Channel*>(of));
        return nullptr;
      },
      this));
  return receiver.start(
      "gpurun-bulk-in",
      [](void* of) -> void* {
        static_cast<Channel*>(of)->bulk->run_receiver(*static_cast<Channel*>(of));
        return nullptr;
      },
      this);
}

void Bulk::Channel::join() noexcept {
  sender.join();
  receiver.join();
}

// The senders in use have changed. Each checks by itself.
void Bulk::wake_senders_in_use() {
  unused_.notify_all();
  to_send_.notify_all();
}

void Bulk::ask_for_more() {
  if (!use_.lacks()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!use_.ask_for_more() || ended_) return;
  }
  if (listener_.wants_more != nullptr) listener_.wants_more(listener_.user);
}

unsigned Bulk::wanted() const noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return ended_ ? use_.open() : use_.wanted();
}

unsigned Bulk::open() const noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return use_.open();
}

Bulk::Used Bulk::used() const noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return use_.to_device();
}

Bulk::Used Bulk::used_from_device() const noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return use_.from_device();
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
  const bool started = channel->start().ok();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!started) return use_.cannot_start();
  if (use_.opened(their_cores)) wake_senders_in_use();
}

void Bulk::cannot_add() {
  const std::lock_guard<std::mutex> lock(mutex_);
  use_.cannot_open();
}

}  // namespace gpurun::client
