// Socket: a socket, and what may be between it and the bytes.
#include "transport/carrier/socket.h"

#include <poll.h>

namespace gpurun::transport::carrier {
namespace {

// `connection` is `below` itself, or owns it.
class AnySocket final : public Socket {
 public:
  AnySocket(std::unique_ptr<Connection> connection, sockets::SocketConnection& below)
      : connection_(std::move(connection)), below_(below) {}

  Connection& bytes() const noexcept override { return *connection_; }
  bool taken_away() const noexcept override { return below_.taken_away(); }
  bool seems_taken_away() const noexcept override { return below_.seems_taken_away(); }
  Status gone_by_the_program() override { return below_.gone_by_the_program(); }
  void await_room(bool or_bytes, std::chrono::nanoseconds span) noexcept override {
    if (or_bytes && connection_->holds_received()) return;
    pollfd ready = {below_.fd(), static_cast<short>(or_bytes ? POLLIN | POLLOUT : POLLOUT), 0};
    (void)poll(&ready, 1, Deadline::in(span).poll_timeout_ms());
  }
  void await_bytes(int beside, bool or_room, std::chrono::nanoseconds span) noexcept override {
    if (connection_->holds_received()) return;
    pollfd ready[] = {{below_.fd(), static_cast<short>(or_room ? POLLIN | POLLOUT : POLLIN), 0},
                      {beside, POLLIN, 0}};
    (void)poll(ready, 2, Deadline::in(span).poll_timeout_ms());
  }
  bool has_ended() const noexcept override {
    pollfd end = {below_.fd(), POLLRDHUP, 0};
    return poll(&end, 1, 0) > 0;
  }
  Result<std::unique_ptr<sockets::SocketWatch>> watch(int beside) override {
    return sockets::SocketWatch::of(below_, below_.fd_min(), beside);
  }

 private:
  const std::unique_ptr<Connection> connection_;
  sockets::SocketConnection& below_;
};

}  // namespace

std::unique_ptr<Socket> plain_socket(std::unique_ptr<sockets::SocketConnection> connection) {
  sockets::SocketConnection& below = *connection;
  return std::make_unique<AnySocket>(std::move(connection), below);
}

std::unique_ptr<Socket> layered_socket(std::unique_ptr<Connection> connection,
                                       sockets::SocketConnection& below) {
  return std::make_unique<AnySocket>(std::move(connection), below);
}

}  // namespace gpurun::transport::carrier
