// ConnectionThreads: one thread for each connection in a handshake or control link.
//
// Any thread. The mutex is a leaf.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <set>

#include "base/deadline.h"
#include "server/daemon/links/connection_closer.h"
#include "server/daemon/links/half_open.h"
#include "server/daemon/links/handshake_admission.h"
#include "server/daemon/links/loop_wake.h"
#include "transport/transport.h"

namespace gpurun::server {

class ConnectionThreads {
 public:
  // Serves one connection until the deadline for its proof, and as long as it likes afterwards. It
  // leaves the connection empty when another owner has taken it.
  using Serve = std::function<void(std::unique_ptr<transport::Connection>& connection,
                                   HalfOpen& half_open, Deadline deadline)>;

  // Borrows both references.
  ConnectionThreads(Serve serve, ConnectionCloser& closer, const LoopWake& wake)
      : serve_(std::move(serve)), closer_(closer), wake_(wake) {}
  ConnectionThreads(const ConnectionThreads&) = delete;
  ConnectionThreads& operator=(const ConnectionThreads&) = delete;

  // Serves a connection that has its place in `admission`. run()'s thread.
  void start(HandshakeAdmission& admission, HandshakeAdmission::Admitted admitted);
  // The connection must no longer be shut down. Call before it is destroyed or passed on.
  void forget(transport::Connection* connection);
  // Waits until the threads end by themselves, for `last_words`. Then shuts down their connections
  // and waits for the rest.
  void end(std::chrono::milliseconds last_words);

 private:
  const Serve serve_;
  ConnectionCloser& closer_;
  const LoopWake& wake_;
  std::mutex mutex_;  // Guards what follows.
  std::condition_variable thread_ended_;
  std::size_t threads_ = 0;
  std::set<transport::Connection*> links_;  // To shut down at the end.
};

}  // namespace gpurun::server
