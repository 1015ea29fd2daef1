// Socket: a socket, and what may be between it and the bytes.
#include "transport/carrier/socket.h"

#include <poll.h>

#include <algorithm>
#include <atomic>

#include "transport/sockets/room_call.h"

namespace gpurun::transport::carrier {
namespace {

// A process without another descriptor looks again so often.
constexpr std::chrono::nanoseconds kSpanWithoutCalls = std::chrono::milliseconds(100);

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
  bool await_bytes(int beside, bool or_room, std::chrono::nanoseconds span) noexcept override {
    if (connection_->holds_received()) return true;
    pollfd ready[] = {{below_.fd(), static_cast<short>(or_room ? POLLIN | POLLOUT : POLLIN), 0},
                      {beside, POLLIN, 0},
                      {call_ == nullptr ? -1 : call_->fd(), POLLIN, 0}};
    if (call_ == nullptr) span = std::min(span, kSpanWithoutCalls);
    (void)poll(ready, 3, Deadline::in(span).poll_timeout_ms());
    if (ready[2].revents != 0 && call_ != nullptr) call_->take_back();
    return ready[0].revents != 0 || ready[2].revents != 0 || ready[1].revents != POLLIN;
  }
  void heed_calls() noexcept override {
    if (call_ != nullptr) return;
    call_ = sockets::RoomCall::of(below_);
    heeded_.store(call_.get());
    std::atomic_thread_fence(std::memory_order_seq_cst);  // The caller looks behind it.
  }
  void call_for_room() noexcept override {
    if (sockets::RoomCall* const call = heeded_.load(); call != nullptr) call->make();
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
  std::unique_ptr<sockets::RoomCall> call_;  // The receiving thread's.
  std::atomic<sockets::RoomCall*> heeded_{nullptr};
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
