// CarriedWatch: a watch of a carried connection, which watches its socket. While bytes come by the
// carrier, the socket becomes readable only after the receiver has said that it sleeps.
//
// pause() and resume() make no system call, unless the receiving thread itself goes to sleep in
// between. Then the bytes that wake that thread must not wake the watcher.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "transport/sockets/watch.h"
#include "transport/transport.h"

namespace gpurun::transport::carrier {

// What may become readable while the watch is paused.
enum class Stirs : std::uint8_t { kNothing, kBeside, kSocket };

// The receiving side, as the watch sees it. Called while no thread receives.
class Watched {
 public:
  // Returns true when there is no reason to sleep. Otherwise the socket becomes readable when there
  // is one. `*wants_room`: the socket must also be watched for room to send.
  virtual bool go_to_sleep(bool* wants_room) = 0;
  // Any thread.
  virtual bool wants_room() const noexcept = 0;
  // The socket has become readable, or only the carrier's descriptor. Returns as go_to_sleep():
  // records for the connection itself are no reason to wake up.
  virtual bool heed_wake(bool by_carrier_only) = 0;
  // Returns what may make a watched descriptor readable now: bytes over the socket itself, or what
  // the carrier's descriptor was asked for.
  virtual Stirs wake_up() noexcept = 0;

 protected:
  ~Watched() = default;
};

class CarriedWatch;

// Where a connection finds its watch.
class WatchPlace {
 public:
  // The receiving thread.
  CarriedWatch* get() const noexcept { return watch_.load(std::memory_order_acquire); }
  void set(CarriedWatch* watch) noexcept;
  // As CarriedWatch's. Any thread.
  void want_room() noexcept;

 private:
  std::mutex mutex_;  // Held while another thread than the receiving one uses the watch.
  std::atomic<CarriedWatch*> watch_{nullptr};
};

class CarriedWatch final : public Watch {
 public:
  // `watched` and `place` belong to the connection and outlive this object. `place` has this object
  // while it lives.
  CarriedWatch(std::unique_ptr<sockets::SocketWatch> socket, Watched& watched, WatchPlace& place);
  ~CarriedWatch() override;

  Status wait(Deadline deadline) override;
  void pause() noexcept override;
  void resume() noexcept override;
  int fd() const noexcept override { return socket_->fd(); }
  int second_fd() const noexcept override { return socket_->second_fd(); }

  // The receiving thread goes to sleep at the socket. Pauses the socket's watch, if this watch is
  // paused.
  void receiver_sleeps() noexcept;
  // The sender has left output. Wakes the watcher, too, when the socket has room. Any thread.
  void want_room() noexcept { socket_->want_room(true); }

 private:
  bool go_to_sleep();

  const std::unique_ptr<sockets::SocketWatch> socket_;
  Watched& watched_;
  WatchPlace& place_;
  std::mutex mutex_;  // Guards all below, and watched_ while no thread receives.
  int pauses_ = 0;
  bool socket_paused_ = false;  // The socket's watch is paused with this one.
};

}  // namespace gpurun::transport::carrier
