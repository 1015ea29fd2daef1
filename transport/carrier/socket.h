// Socket: what a carried connection needs of the socket below it, besides its bytes.
#pragma once

#include <chrono>
#include <memory>
#include <utility>

#include "base/deadline.h"
#include "transport/sockets/connection.h"
#include "transport/sockets/watch.h"
#include "transport/transport.h"

namespace gpurun::transport::carrier {

class Socket {
 public:
  Socket() = default;
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  virtual ~Socket() = default;

  // Sends and receives.
  virtual Connection& bytes() const noexcept = 0;
  // As SocketConnection's.
  virtual bool taken_away() const noexcept = 0;
  virtual bool seems_taken_away() const noexcept = 0;
  virtual Status gone_by_the_program() = 0;
  // Waits for room to send, and for bytes if `or_bytes`. Also returns after `span`, or spuriously.
  virtual void await_room(bool or_bytes, std::chrono::nanoseconds span) noexcept = 0;
  // Waits for bytes, or for `beside` (-1: nothing) to become readable, and for room if `or_room`.
  // As above. False: only `beside` is readable.
  virtual bool await_bytes(int beside, bool or_room, std::chrono::nanoseconds span) noexcept = 0;
  // From now on call_for_room() makes await_bytes() wait for room, too. The receiving thread.
  virtual void heed_calls() noexcept = 0;
  // Any thread.
  virtual void call_for_room() noexcept = 0;
  // Whether the other end has ended it.
  virtual bool has_ended() const noexcept = 0;
  // `beside`: another descriptor that it watches, -1 for none.
  virtual Result<std::unique_ptr<sockets::SocketWatch>> watch(int beside) = 0;
};

std::unique_ptr<Socket> plain_socket(std::unique_ptr<sockets::SocketConnection> connection);
// `connection` has the bytes, and sends them by `below`, which it owns (TLS).
std::unique_ptr<Socket> layered_socket(std::unique_ptr<Connection> connection,
                                       sockets::SocketConnection& below);

}  // namespace gpurun::transport::carrier
