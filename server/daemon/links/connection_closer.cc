// ConnectionCloser: takes all waiting connections at once, and destroys them without the lock.
#include "server/daemon/links/connection_closer.h"

#include <spdlog/spdlog.h>

#include <iterator>
#include <system_error>
#include <utility>

namespace gpurun::server {

void ConnectionCloser::start() {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    spdlog::warn("no thread to close connections on: {}", error.what());
  }
}

void ConnectionCloser::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ConnectionCloser::close(std::unique_ptr<transport::Connection> connection) {
  Connections one;
  one.push_back(std::move(connection));
  close(std::move(one));
}

void ConnectionCloser::close(Connections connections) {
  std::erase(connections, nullptr);
  if (connections.empty()) return;
  Connections unaided;  // Destroyed after the lock is released.
  const std::lock_guard lock(mutex_);
  if (stopping_ || !thread_.joinable()) {
    unaided = std::move(connections);
    return;
  }
  std::move(connections.begin(), connections.end(), std::back_inserter(waiting_));
  changed_.notify_all();
}

std::size_t ConnectionCloser::backlog() const {
  const std::lock_guard lock(mutex_);
  return waiting_.size() + closing_;
}

void ConnectionCloser::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    Connections taken = std::exchange(waiting_, {});
    closing_ = taken.size();
    lock.unlock();
    taken.clear();
    lock.lock();
    closing_ = 0;
  }
}

}  // namespace gpurun::server
