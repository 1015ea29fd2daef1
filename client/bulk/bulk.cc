// Bulk: its start and end, and the connections that join.
#include "client/bulk/bulk.h"

#include <utility>

namespace gpurun::client {

Bulk::Bulk(std::vector<transport::Connection*> connections, Listener listener, Known known,
           std::optional<ConnectionCount::Bounds> bounds)
    : state_(listener, known, static_cast<unsigned>(connections.size()), bounds),
      uploads_(state_, connections.front()->capabilities().shares_memory),
      downloads_(state_) {
  for (transport::Connection* connection : connections) {
    channels_.push_back(
        std::make_unique<Channel>(this, connection, known.packed_chunks, channels_.size()));
  }
}

Status Bulk::start() {
  GPURUN_RETURN_IF_ERROR(state_.window.map());
  for (auto& channel : channels_) GPURUN_RETURN_IF_ERROR(channel->start());
  return {};
}

void Bulk::end() noexcept {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  state_.ended = true;
  for (auto& channel : channels_) {
    if (channel->owned != nullptr) channel->owned->shut_down();
  }
  state_.to_send.notify_all();
  state_.unused.notify_all();
  state_.room.notify_all();
  state_.read_done.notify_all();
  state_.completed.notify_all();
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

void Bulk::ask_for_more() {
  if (!state_.use.lacks()) return;
  {
    const std::lock_guard<std::mutex> lock(state_.mutex);
    if (!state_.use.ask_for_more() || state_.ended) return;
  }
  if (state_.listener.wants_more != nullptr) state_.listener.wants_more(state_.listener.user);
}

unsigned Bulk::wanted() const noexcept {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  return state_.ended ? state_.use.open() : state_.use.wanted();
}

unsigned Bulk::open() const noexcept {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  return state_.use.open();
}

Bulk::Used Bulk::used() const noexcept {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  return state_.use.to_device();
}

Bulk::Used Bulk::used_from_device() const noexcept {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  return state_.use.from_device();
}

void Bulk::add(std::unique_ptr<transport::Connection> connection, unsigned their_cores) {
  Channel* channel = nullptr;
  {
    const std::lock_guard<std::mutex> lock(state_.mutex);
    channels_.push_back(std::make_unique<Channel>(this, connection.get(),
                                                  state_.known.packed_chunks, channels_.size()));
    channel = channels_.back().get();
    channel->owned = std::move(connection);
    if (state_.ended) return channel->owned->shut_down();
  }
  const bool started = channel->start().ok();
  const std::lock_guard<std::mutex> lock(state_.mutex);
  if (!started) return state_.use.cannot_start();
  if (state_.use.opened(their_cores)) state_.wake_senders_in_use();
}

void Bulk::cannot_add() {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  state_.use.cannot_open();
}

}  // namespace gpurun::client
