// ConnectionCloser: closes connections on a thread of its own. The close of a local socket may take
// long (base/close_without_linger.h), and nothing else in the daemon may wait for it.
//
// Any thread. Only the daemon's thread calls start() and stop().
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "transport/transport.h"

namespace gpurun::server {

class ConnectionCloser {
 public:
  using Connections = std::vector<std::unique_ptr<transport::Connection>>;

  ConnectionCloser() = default;
  ~ConnectionCloser() { stop(); }
  ConnectionCloser(const ConnectionCloser&) = delete;
  ConnectionCloser& operator=(const ConnectionCloser&) = delete;

  // The system may refuse a thread. Without it close() closes the connection itself.
  void start();
  // Returns when all connections are closed.
  void stop();
  void close(std::unique_ptr<transport::Connection> connection);
  void close(Connections connections);
  // Connections that are not closed yet.
  std::size_t backlog() const;

 private:
  void run();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Connections waiting_;
  std::size_t closing_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace gpurun::server
