// SocketConnection: a connection over one stream socket, either TCP or local (unix(7)). A local one
// is the base of a connection in shared memory (transport/shm).
//
// The socket is blocking, with kernel time-outs of one slice: one second, or ten
// (Options::patient). So a wait with a far deadline costs one system call, without a poll before
// it. After each slice the thread checks the deadline, and whether the program has closed the
// descriptor. Waits shorter than a slice use poll(2).
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "base/descriptor_identity.h"
#include "base/descriptor_mark.h"
#include "transport/kept_bytes.h"
#include "transport/sockets/address.h"
#include "transport/transport.h"

namespace gpurun::transport::sockets {

class SocketConnection final : public Connection {
 public:
  // Takes over a connected stream socket, made here or passed on by another process. Sets
  // close-on-exec, no delay and keep-alive, and moves it to options.fd_min or above.
  // kInvalidArgument: `fd` is not a stream socket. kPeerGone: it has no peer, which may have left
  // since the socket was connected (getpeername(2), ENOTCONN).
  static Result<std::unique_ptr<Connection>> adopt(UniqueFd fd, const Options& options);

  const Capabilities& capabilities() const override { return capabilities_; }
  const std::string& description() const override { return description_; }
  Status send(std::span<const ByteView> parts, Deadline deadline) override;
  Result<std::size_t> send_some(std::span<const ByteView> parts) override;
  Result<std::size_t> receive(MutableBytes into, std::size_t bytes_min, Deadline deadline) override;
  Result<std::size_t> receive_some(MutableBytes into, bool again) override;
  void bound_unsent(std::size_t bytes) noexcept override;
  void shut_down() noexcept override;
  Result<std::unique_ptr<Watch>> watch() override;
  bool holds_received() const noexcept override { return !kept_.empty(); }
  int fd() const noexcept override { return fd_.get(); }
  ~SocketConnection() override;

  // The lower bound of our descriptors' numbers (Options::fd_min).
  int fd_min() const noexcept { return fd_min_; }
  // True when the descriptor's number is no longer our socket (Options::others_may_close).
  bool taken_away() const noexcept;
  // As taken_away(), for each send and receive, where the exact check would cost as much as the
  // rest.
  bool seems_taken_away() const noexcept;
  // Marks the connection as closed by the program, for good, and returns that status.
  Status gone_by_the_program();

 private:
  SocketConnection(UniqueFd fd, std::string description, bool same_host, const Options& options);

  ssize_t receive_bytes(MutableBytes into, int flags);
  // True when the kernel's time-out of one slice may bound a wait until `deadline`.
  bool outlasts_slice(Deadline deadline) const noexcept;
  // Waits until the socket is ready for `events`, or the deadline has passed.
  void wait_ready(short events, Deadline deadline) const;
  Status gone(const char* doing, int error_number);

  UniqueFd fd_;
  const bool others_may_close_;
  const bool strangers_;
  const int fd_min_;
  const std::chrono::seconds slice_;
  const DescriptorIdentity identity_;
  const DescriptorMark mark_;  // Only where others_may_close_.
  std::string description_;
  Capabilities capabilities_;
  std::atomic<bool> gone_{false};
  KeptBytes kept_;
};

// Connects to one address.
Result<std::unique_ptr<Connection>> connect(const SocketAddress& address, Deadline deadline,
                                            const Options& options);
// Connects to the first of the host's addresses that answers.
Result<std::unique_ptr<Connection>> connect(const HostPort& address, Deadline deadline,
                                            const Options& options);

}  // namespace gpurun::transport::sockets
