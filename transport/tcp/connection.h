// Connection over one stream socket: of TCP, or a local one (unix(7)), which begins a connection in
// shared memory (transport/shm).
//
// The socket is blocking, with kernel time-outs of a second, or of ten (Options::patient): a wait
// with a far deadline costs one system call (no poll before it), and is cut into such slices only
// so that the deadline is seen, and a descriptor that the program has closed. Waits shorter than a
// slice are done by poll(2).
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "base/descriptor_identity.h"
#include "base/descriptor_mark.h"
#include "transport/kept_bytes.h"
#include "transport/tcp/address.h"
#include "transport/transport.h"

namespace gpurun::transport::tcp {

class TcpConnection final : public Connection {
 public:
  // Takes over a connected stream socket, its own or one that another process passed on: sets
  // close-on-exec, no delay and keep-alive, and moves it to options.fd_min or above.
  // kInvalidArgument when `fd` is no connected stream socket.
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
  ~TcpConnection() override;

  // Where Options::fd_min wants our descriptors.
  int fd_min() const noexcept { return fd_min_; }
  // The number does not stand for our socket any more (Options::others_may_close).
  bool taken_away() const noexcept;
  // Likewise, asked before each send and receive, where the answer costs as much as the rest.
  bool seems_taken_away() const noexcept;
  // Says so, for good.
  Status gone_by_the_program();

 private:
  TcpConnection(UniqueFd fd, std::string description, bool same_host, const Options& options);

  ssize_t receive_bytes(MutableBytes into, int flags);
  // True when a wait until `deadline` may be left to the kernel's time-out of one slice.
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
  const DescriptorMark mark_;  // Only where others may close.
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

}  // namespace gpurun::transport::tcp
