// Line: what sender and receiver of a carried connection share, and its end.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "base/deadline.h"
#include "base/result.h"
#include "transport/carrier/carrier.h"
#include "transport/carrier/socket.h"
#include "transport/carrier/watch.h"

namespace gpurun::transport::carrier {

// No wait lasts longer at once, because a killed process cannot wake the other end.
inline std::chrono::nanoseconds slice_of(Deadline deadline) noexcept {
  const std::chrono::nanoseconds slice = std::chrono::milliseconds(100);
  return deadline.is_never() ? slice : std::min(slice, deadline.remaining());
}

class Line {
 public:
  Line(std::unique_ptr<Socket> socket, std::unique_ptr<Carrier> carrier)
      : socket_(std::move(socket)),
        carrier_(std::move(carrier)),
        description_(std::string(carrier_->name()) + ", by " + socket_->bytes().description()) {}

  Socket& socket() const noexcept { return *socket_; }
  // The bytes of the socket.
  Connection& bytes() const noexcept { return socket_->bytes(); }
  Carrier& carrier() const noexcept { return *carrier_; }
  WatchPlace& watch() noexcept { return watch_; }
  const std::string& description() const noexcept { return description_; }
  bool is_gone() const noexcept { return gone_.load(std::memory_order_relaxed); }

  // The sender leaves output. The thread that sleeps for bytes wakes when there is room, and sends
  // it. Call behind kFlush. Any thread.
  void call_for_room() noexcept {
    socket_->call_for_room();
    watch_.want_room();
  }
  // Any thread, any number of times.
  void shut_down() noexcept {
    gone_.store(true);
    carrier_->close();
    socket_->bytes().shut_down();
  }
  // Ends the connection, and returns why it has ended.
  Status gone(const char* doing) {
    if (socket_->taken_away()) return socket_->gone_by_the_program();
    const bool ours = gone_.load();
    shut_down();
    return Status(
        Code::kPeerGone,
        description_ + (ours ? ": closed while " : ": closed by the peer while ") + doing);
  }
  // Leaves the line open, because the other end's last bytes can still be received. receive() finds
  // the end itself.
  Status nobody_reads() const {
    if (socket_->taken_away()) return socket_->gone_by_the_program();
    return Status(Code::kPeerGone, description_ + ": closed by the peer while sending");
  }
  Status broken() {
    shut_down();
    return Status(Code::kPeerGone, description_ + ": the other end has broken the rules");
  }
  Status late(const char* doing) const {
    return Status(Code::kDeadline, description_ + ": " + doing);
  }

 private:
  const std::unique_ptr<Socket> socket_;
  const std::unique_ptr<Carrier> carrier_;
  const std::string description_;
  WatchPlace watch_;
  std::atomic<bool> gone_{false};
};

}  // namespace gpurun::transport::carrier
