// Socket: a socket without anything between.
#include "transport/carrier/socket.h"

#include <poll.h>

namespace gpurun::transport::carrier {
namespace {

class PlainSocket final : public Socket {
 public:
  explicit PlainSocket(std::unique_ptr<sockets::SocketConnection> connection)
      : connection_(std::move(connection)) {}

  Connection& bytes() const noexcept override { return *connection_; }
  bool taken_away() const noexcept override { return connection_->taken_away(); }
  bool seems_taken_away() const noexcept override { return connection_->seems_taken_away(); }
  Status gone_by_the_program() override { return connection_->gone_by_the_program(); }
  void await_room(bool or_bytes, std::chrono::nanoseconds span) noexcept override {
    pollfd ready = {connection_->fd(), static_cast<short>(or_bytes ? POLLIN | POLLOUT : POLLOUT),
                    0};
    (void)poll(&ready, 1, Deadline::in(span).poll_timeout_ms());
  }
  void await_bytes(int beside, bool or_room, std::chrono::nanoseconds span) noexcept override {
    pollfd ready[] = {
        {connection_->fd(), static_cast<short>(or_room ? POLLIN | POLLOUT : POLLIN), 0},
        {beside, POLLIN, 0}};
    (void)poll(ready, 2, Deadline::in(span).poll_timeout_ms());
  }
  bool has_ended() const noexcept override {
    pollfd end = {connection_->fd(), POLLRDHUP, 0};
    return poll(&end, 1, 0) > 0;
  }
  Result<std::unique_ptr<sockets::SocketWatch>> watch(int beside) override {
    return sockets::SocketWatch::of(*connection_, connection_->fd_min(), beside);
  }

 private:
  const std::unique_ptr<sockets::SocketConnection> connection_;
};

}  // namespace

std::unique_ptr<Socket> plain_socket(std::unique_ptr<sockets::SocketConnection> connection) {
  return std::make_unique<PlainSocket>(std::move(connection));
}

}  // namespace gpurun::transport::carrier
