// BulkConnections: the start and end of the threads, and the connections that join.
#include "client/bulk/bulk_connections.h"

#include <mutex>
#include <utility>

namespace gpurun::client {

BulkConnections::BulkConnections(BulkState& state, BulkUploads& uploads, BulkDownloads& downloads,
                                 const std::vector<transport::Connection*>& connections)
    : state_(state), uploads_(uploads), downloads_(downloads) {
  for (transport::Connection* connection : connections) {
    channels_.push_back(std::make_unique<Channel>(*this, *connection, channels_.size()));
  }
}

Status BulkConnections::start() {
  for (auto& channel : channels_) GPURUN_RETURN_IF_ERROR(channel->start());
  return {};
}

void BulkConnections::shut_down_joined() noexcept {
  for (auto& channel : channels_) {
    if (channel->owned != nullptr) channel->owned->shut_down();
  }
}

void BulkConnections::join() noexcept {
  for (auto& channel : channels_) channel->join();
}

Status BulkConnections::Channel::start() {
  GPURUN_RETURN_IF_ERROR(sender.start());
  return receiver.start();
}

void BulkConnections::Channel::join() noexcept {
  sender.join();
  receiver.join();
}

unsigned BulkConnections::wanted() const noexcept {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  return state_.ended ? state_.use.open() : state_.use.wanted();
}

unsigned BulkConnections::open() const noexcept {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  return state_.use.open();
}

BulkConnections::Used BulkConnections::used() const noexcept {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  return state_.use.to_device();
}

BulkConnections::Used BulkConnections::used_from_device() const noexcept {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  return state_.use.from_device();
}

void BulkConnections::add(std::unique_ptr<transport::Connection> connection, unsigned their_cores) {
  Channel* channel = nullptr;
  {
    const std::lock_guard<std::mutex> lock(state_.mutex);
    channels_.push_back(std::make_unique<Channel>(*this, *connection, channels_.size()));
    channel = channels_.back().get();
    channel->owned = std::move(connection);
    if (state_.ended) return channel->owned->shut_down();
  }
  const bool started = channel->start().ok();
  const std::lock_guard<std::mutex> lock(state_.mutex);
  if (!started) return state_.use.cannot_start();
  if (state_.use.opened(their_cores)) state_.wake_senders_in_use();
}

void BulkConnections::cannot_add() {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  state_.use.cannot_open();
}

}  // namespace gpurun::client
