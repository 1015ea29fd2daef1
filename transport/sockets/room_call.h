// RoomCall: a descriptor that becomes readable when a socket has room to send, once a thread has
// called for it. poll(2) on it and on the socket together wakes a receiving thread for output that
// another thread has left.
//
// It is an epoll(7) and no eventfd(2), because nothing is read from it. A program that closes the
// descriptor and reuses its number so loses no byte.
#pragma once

#include <memory>

#include "base/unique_fd.h"
#include "transport/sockets/connection.h"

namespace gpurun::transport::sockets {

class RoomCall {
 public:
  // Null: no descriptor. `connection` outlives it.
  static std::unique_ptr<RoomCall> of(const SocketConnection& connection);
  ~RoomCall();
  RoomCall(const RoomCall&) = delete;
  RoomCall& operator=(const RoomCall&) = delete;

  int fd() const noexcept { return epoll_.get(); }
  // Any thread.
  void make() noexcept;
  void take_back() noexcept;

 private:
  RoomCall(const SocketConnection& connection, UniqueFd epoll)
      : connection_(connection), epoll_(std::move(epoll)) {}

  const SocketConnection& connection_;
  UniqueFd epoll_;
};

}  // namespace gpurun::transport::sockets
