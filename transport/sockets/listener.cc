// Socket listener: bind, listen, and accept with a deadline.
#include "transport/sockets/listener.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>

#include "transport/sockets/connection.h"

namespace gpurun::transport::sockets {
namespace {

constexpr int kBacklog = 1024;

class SocketListener final : public Listener {
 public:
  SocketListener(UniqueFd fd, UniqueFd wake, const SocketAddress& address)
      : fd_(std::move(fd)),
        wake_(std::move(wake)),
        address_(address.to_string()),
        local_(address.family() == AF_UNIX) {}

  Result<std::unique_ptr<Connection>> accept(Deadline deadline) override;
  const std::string& address() const override { return address_; }
  void shut_down() noexcept override {
    stopped_.store(true);
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof one);
  }
  int fd() const noexcept override { return fd_.get(); }

 private:
  UniqueFd fd_;
  UniqueFd wake_;  // shutdown(2) does not wake a poll on a listening socket everywhere.
  std::string address_;
  const bool local_;
  std::atomic<bool> stopped_{false};
};

// Errors of a peer that left before it was accepted (accept(2), "Error handling").
bool is_peers_trouble(int error_number) {
  switch (error_number) {
    case EINTR:
    case EAGAIN:
    case ECONNABORTED:
    case EPROTO:
    case ENETDOWN:
    case ENOPROTOOPT:
    case EHOSTDOWN:
    case ENONET:
    case EHOSTUNREACH:
    case EOPNOTSUPP:
    case ENETUNREACH:
      return true;
    default:
      return false;
  }
}

Result<std::unique_ptr<Connection>> SocketListener::accept(Deadline deadline) {
  for (;;) {
    if (stopped_.load()) {
      return Status(Code::kPeerGone, "the listener on " + address_ + " was shut down");
    }
    pollfd entries[2] = {{fd_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    const int ready = poll(entries, 2, deadline.poll_timeout_ms());
    if (ready < 0 && errno != EINTR) return Status::from_errno(errno, "waiting on " + address_);
    if (ready <= 0) {
      if (deadline.passed()) return Status(Code::kDeadline, "no connection came to " + address_);
      continue;
    }
    if ((entries[0].revents & POLLIN) == 0) continue;
    UniqueFd peer(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!peer.valid() && !is_peers_trouble(errno)) {
      return Status::from_errno(errno, "accepting on " + address_);
    }
    if (peer.valid()) {
      Result<std::unique_ptr<Connection>> connection =
          SocketConnection::adopt(std::move(peer), {.strangers = local_});
      if (connection.ok()) return connection;
    }
    // The peer has left already. A series of such peers must not hold the caller beyond its
    // deadline.
    if (deadline.passed()) return Status(Code::kDeadline, "no connection stayed at " + address_);
  }
}

Result<UniqueFd> bind_one(const SocketAddress& address) {
  // Non-blocking: a peer that leaves between poll() and accept() must not block this thread.
  UniqueFd fd(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const std::string what = "listening on " + address.to_string();
  if (!fd.valid()) return Status::from_errno(errno, what);
  const int yes = 1;
  // A restart must not wait for the previous run's connections to time out.
  (void)setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(fd.get(), address.get(), address.byte_count) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    const int error = errno;
    const bool taken = error == EADDRINUSE || error == EADDRNOTAVAIL;
    const Status status = Status::from_errno(error, what);
    return taken ? Status(Code::kUnavailable, status.message()) : status;
  }
  return fd;
}

}  // namespace

Result<std::unique_ptr<Listener>> listen(const SocketAddress& address) {
  Result<UniqueFd> fd = bind_one(address);
  if (!fd.ok()) return fd.status();
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return Status::from_errno(errno, "creating an eventfd");
  Result<SocketAddress> bound = local_address(fd->get());
  if (!bound.ok()) return bound.status();
  return std::unique_ptr<Listener>(new SocketListener(std::move(*fd), std::move(wake), *bound));
}

Result<std::unique_ptr<Listener>> listen(const HostPort& address) {
  Result<std::vector<SocketAddress>> addresses = resolve(address, true);
  if (!addresses.ok()) return addresses.status();
  Status last(Code::kUnavailable, "no address");
  for (const SocketAddress& one : *addresses) {
    Result<std::unique_ptr<Listener>> listener = listen(one);
    if (listener.ok()) return listener;
    last = listener.status();
  }
  return last;
}

}  // namespace gpurun::transport::sockets
