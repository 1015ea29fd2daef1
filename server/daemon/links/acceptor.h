// Acceptor: how connections come in. They are accepted at once and sorted by what they have sent. A
// thread of its own serves each when there is a place for it.
//
// Bounds: connections of one turn, connections that wait for their close, and for each listener
// those of HandshakeAdmission. run()'s thread. half_open(): any thread.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "base/status.h"
#include "server/daemon/links/connection_closer.h"
#include "server/daemon/links/connection_threads.h"
#include "server/daemon/links/handshake_admission.h"
#include "transport/transport.h"

namespace gpurun::server {

class Acceptor {
 public:
  // Borrows both.
  Acceptor(ConnectionThreads& threads, ConnectionCloser& closer)
      : threads_(threads), closer_(closer) {}
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Adds a listener, which must outlive this object. kResourceExhausted: no descriptor. Call before
  // the daemon serves.
  Status open(transport::Listener* listener, const AdmissionLimits& limits,
              HandshakeAdmission::ShowsTicket shows_ticket);

  // Adds what poll() has to watch. look() gets the same vector.
  void watch(std::vector<pollfd>* waited);
  // Accepts what has come, and serves connections that have a place. Fails when a listener fails.
  Status look(const std::vector<pollfd>& waited);
  // Makes room for connections that wait for a place. Returns the milliseconds, at most `most`,
  // until there may be more to do.
  int milliseconds_to_look(int most);
  // Closes all connections that wait for a place.
  void clear();

  // The number of connections that have not proved anything yet.
  std::size_t half_open() const noexcept;

 private:
  // A listener, and its connections that have not proved anything yet.
  struct Door {
    transport::Listener* listener;
    std::unique_ptr<HandshakeAdmission> admission;
  };

  bool accepts() const;
  Status look_at(Door& door, bool somebody_came);
  Status accept_all(Door& door);

  ConnectionThreads& threads_;
  ConnectionCloser& closer_;
  std::vector<Door> doors_;
  std::size_t first_ = 0;                               // In the vector of watch().
  std::chrono::steady_clock::time_point accepts_from_;  // Accepts nothing before this time.
};

}  // namespace gpurun::server
