// SocketConnection: waits are left to the kernel in slices, with a check of the deadline after
// each. Every call handles EINTR.
#include "transport/sockets/connection.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>

#include "base/close_without_linger.h"
#include "transport/part_cursor.h"
#include "transport/sockets/descriptor.h"
#include "transport/sockets/watch.h"

namespace gpurun::transport::sockets {
namespace {

constexpr std::chrono::seconds kSlice{1}, kPatientSlice{10};
// Vectors per system call: far below IOV_MAX, so that the array fits any thread's stack.
constexpr std::size_t kVectorsMax = 64;
// The kernel probes an idle peer and ends the connection when its host no longer answers, after
// kKeepIdleS + kKeepCount * kKeepIntervalS = 30 seconds. A peer that is merely stopped answers.
constexpr int kKeepIdleS = 5;
constexpr int kKeepIntervalS = 5;
constexpr int kKeepCount = 5;
// The kernel passes no more descriptors in one message (unix(7), SCM_MAX_FD).
constexpr std::size_t kDescriptorsMax = 253;

std::chrono::seconds slice_of(const Options& options) {
  return options.patient ? kPatientSlice : kSlice;
}

void set_option(int fd, int level, int name, int value) {
  // A failure leaves a slower or less watchful socket, not a wrong one.
  (void)setsockopt(fd, level, name, &value, sizeof value);
}

// Between two processes of one machine there is no network path to share fairly. A sender that
// paces itself (BBR, where the system selects it) is slower there. Reno is in every kernel and open
// to every process.
void leave_unpaced(int fd) {
  static constexpr char kReno[] = "reno";
  (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kReno, sizeof kReno - 1);
}

Status prepare(int fd, std::chrono::seconds kernel_timeout, bool same_host) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) < 0) {
    return Status::from_errno(errno, "preparing a socket");
  }
  const timeval slice = {kernel_timeout.count(), 0};
  if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &slice, sizeof slice) != 0 ||
      setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &slice, sizeof slice) != 0) {
    return Status::from_errno(errno, "setting a socket's time-outs");
  }
  // An urgent byte stays in the stream. Otherwise polls would report it and reads would skip it.
  set_option(fd, SOL_SOCKET, SO_OOBINLINE, 1);
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdleS);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepIntervalS);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepCount);
  if (same_host) leave_unpaced(fd);
  return {};
}

// Returns the descriptor that `make` makes. `keeper` receives it before a child process can inherit
// it.
template <typename Make>
UniqueFd kept(DescriptorKeeper* keeper, const Make& make) {
  if (keeper == nullptr) return make();
  keeper->before_change();
  UniqueFd fd = make();
  keeper->after_change(fd.get());
  return fd;
}

// Writes the next pieces of `cursor` as sendmsg() takes them, and returns how many.
std::size_t fill(const PartCursor& cursor, iovec* vectors) {
  ByteView pieces[kVectorsMax];
  std::size_t bytes = 0;
  const std::size_t count = cursor.look(pieces, std::numeric_limits<std::size_t>::max(), &bytes);
  for (std::size_t i = 0; i < count; ++i) {
    vectors[i] = {const_cast<std::byte*>(pieces[i].data()), pieces[i].size()};
  }
  return count;
}

}  // namespace

SocketConnection::SocketConnection(UniqueFd fd, std::string description, bool same_host,
                                   const Options& options)
    : fd_(std::move(fd)),
      others_may_close_(options.others_may_close),
      strangers_(options.strangers),
      fd_min_(options.fd_min),
      slice_(slice_of(options)),
      identity_(DescriptorIdentity::of(fd_.get())),
      mark_(others_may_close_ ? DescriptorMark::put(fd_.get()) : DescriptorMark()),
      description_(std::move(description)) {
  capabilities_.same_host = same_host;
}

SocketConnection::~SocketConnection() {
  if (taken_away()) static_cast<void>(fd_.release());
  // Unread data is released with the last descriptor, and with it descriptors that the peer sent.
  if (strangers_) close_without_linger(std::move(fd_));
}

// As recv(2). Refuses passed descriptors, because no connection uses them. They are closed without
// a wait, because their sender may have made their close slow.
ssize_t SocketConnection::receive_bytes(MutableBytes into, int flags) {
  if (!strangers_) return recv(fd_.get(), into.data(), into.size(), flags);
  iovec vector = {into.data(), into.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kDescriptorsMax * sizeof(int))> control;
  msghdr message = {};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t received = recvmsg(fd_.get(), &message, flags | MSG_CMSG_CLOEXEC);
  if (received < 0) return received;
  bool any = false;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      close_without_linger(UniqueFd(fd));
      any = true;
    }
  }
  if (!any) return received;
  errno = EPROTO;
  return -1;
}

bool SocketConnection::taken_away() const noexcept {
  return others_may_close_ && !identity_.holds(fd_.get());
}

bool SocketConnection::seems_taken_away() const noexcept {
  return mark_.is_there() ? !mark_.holds(fd_.get()) : taken_away();
}

Result<std::unique_ptr<Connection>> SocketConnection::adopt(UniqueFd fd, const Options& options) {
  Result<SocketAddress> near = local_address(fd.get());
  Result<SocketAddress> far = peer_address(fd.get());
  if (near.ok() && !far.ok() && far.status().code() == Code::kPeerGone) {
    return Status(Code::kPeerGone, "closed by the peer at once");
  }
  if (!near.ok() || !far.ok()) {
    return Status(Code::kInvalidArgument, "the descriptor is not a connected socket");
  }
  fd = kept(options.keeper, [&] { return move_up(std::move(fd), options.fd_min); });
  const bool same_host = far->is_loopback();
  GPURUN_RETURN_IF_ERROR(prepare(fd.get(), slice_of(options), same_host));
  const bool local = near->family() == AF_UNIX;
  std::string description =
      local ? "a local socket" : "tcp " + near->to_string() + " -> " + far->to_string();
  return std::unique_ptr<Connection>(
      new SocketConnection(std::move(fd), std::move(description), same_host, options));
}

bool SocketConnection::outlasts_slice(Deadline deadline) const noexcept {
  return deadline.is_never() || deadline.remaining() > slice_;
}

void SocketConnection::wait_ready(short events, Deadline deadline) const {
  pollfd entry = {fd_.get(), events, 0};
  // Any result, EINTR included, only makes the caller retry and check its deadline.
  (void)poll(&entry, 1, deadline.poll_timeout_ms());
}

Status SocketConnection::gone_by_the_program() {
  gone_.store(true);
  return Status(Code::kUnavailable, "the program has closed gpurun's descriptor " +
                                        std::to_string(fd_.get()) + " (" + description_ + ")");
}

Status SocketConnection::gone(const char* doing, int error_number) {
  if (taken_away()) return gone_by_the_program();
  const bool ours = gone_.exchange(true);
  shutdown(fd_.get(), SHUT_RDWR);
  if (ours) return Status(Code::kPeerGone, description_ + ": closed while " + doing);
  if (error_number == 0) {
    return Status(Code::kPeerGone, description_ + ": closed by the peer while " + doing);
  }
  const Status status = Status::from_errno(error_number, description_ + ": " + doing);
  return Status(Code::kPeerGone, status.message());
}

Status SocketConnection::send(std::span<const ByteView> parts, Deadline deadline) {
  PartCursor cursor(parts);
  while (!cursor.done()) {
    if (gone_.load(std::memory_order_relaxed)) return gone("sending", 0);
    iovec vectors[kVectorsMax];
    msghdr message = {};
    message.msg_iov = vectors;
    message.msg_iovlen = fill(cursor, vectors);
    if (seems_taken_away()) return gone_by_the_program();
    const bool in_kernel = outlasts_slice(deadline);
    const ssize_t sent =
        sendmsg(fd_.get(), &message, MSG_NOSIGNAL | (in_kernel ? 0 : MSG_DONTWAIT));
    if (sent >= 0) {
      cursor.advance(static_cast<std::size_t>(sent));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return gone("sending", errno);
    if (deadline.passed()) {
      if (!cursor.started()) return Status(Code::kDeadline, description_ + ": sending");
      shut_down();
      return Status(Code::kPeerGone, description_ + ": the deadline cut a message in half");
    }
    if (!in_kernel) wait_ready(POLLOUT, deadline);
  }
  if (gone_.load(std::memory_order_relaxed)) return gone("sending", 0);
  return {};
}

Result<std::size_t> SocketConnection::send_some(std::span<const ByteView> parts) {
  if (gone_.load(std::memory_order_relaxed)) return gone("sending", 0);
  const PartCursor cursor(parts);
  if (cursor.done()) return std::size_t{0};
  iovec vectors[kVectorsMax];
  msghdr message = {};
  message.msg_iov = vectors;
  message.msg_iovlen = fill(cursor, vectors);
  if (seems_taken_away()) return gone_by_the_program();
  const ssize_t sent = sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) return static_cast<std::size_t>(sent);
  if (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK) return std::size_t{0};
  return gone("sending", errno);
}

Result<std::size_t> SocketConnection::receive(MutableBytes into, std::size_t bytes_min,
                                              Deadline deadline) {
  if (bytes_min == 0 || bytes_min > into.size()) {
    return Status(Code::kInvalidArgument, description_ + ": receive of no bytes");
  }
  std::size_t got = kept_.take(into);
  while (got < bytes_min) {
    if (seems_taken_away()) return gone_by_the_program();
    const bool in_kernel = outlasts_slice(deadline);
    const ssize_t received = receive_bytes(into.subspan(got), in_kernel ? 0 : MSG_DONTWAIT);
    if (received > 0) {
      got += static_cast<std::size_t>(received);
      continue;
    }
    if (received == 0) return gone("receiving", 0);
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return gone("receiving", errno);
    if (deadline.passed()) {
      kept_.put_back(into.first(got));
      return Status(Code::kDeadline, description_ + ": receiving");
    }
    if (!in_kernel) wait_ready(POLLIN, deadline);
  }
  return got;
}

// Checks at the first poll of a series only that the descriptor is still ours, because that check
// costs more than the poll.
Result<std::size_t> SocketConnection::receive_some(MutableBytes into, bool again) {
  if (into.empty() || !kept_.empty()) return Connection::receive_some(into, again);
  if (!again && seems_taken_away()) return gone_by_the_program();
  const ssize_t received = receive_bytes(into, MSG_DONTWAIT);
  if (received > 0) return static_cast<std::size_t>(received);
  if (received == 0) return gone("receiving", 0);
  if (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK) return std::size_t{0};
  return gone("receiving", errno);
}

Result<std::unique_ptr<Watch>> SocketConnection::watch() {
  Result<std::unique_ptr<SocketWatch>> made = SocketWatch::of(*this, fd_min_);
  if (!made.ok()) return made.status();
  return std::unique_ptr<Watch>(*std::move(made));
}

void SocketConnection::bound_unsent(std::size_t bytes) noexcept {
  if (!taken_away()) {
    set_option(fd_.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, static_cast<int>(bytes));
  }
}

void SocketConnection::shut_down() noexcept {
  gone_.store(true, std::memory_order_relaxed);
  if (!taken_away()) shutdown(fd_.get(), SHUT_RDWR);
}

namespace {

constexpr char kNotWanted[] = ": not wanted any more";

bool given_up(const Options& options) {
  return options.keeper != nullptr && !options.keeper->wanted();
}

Status connect_to(const SocketAddress& address, const UniqueFd& fd, Deadline deadline,
                  const Options& options) {
  const std::string what = "connecting to " + address.to_string();
  if (!fd.valid()) return Status::from_errno(errno, what);
  int failed = ::connect(fd.get(), address.get(), address.byte_count);
  // The backlog of a local socket is full. No event reports that it has room again.
  while (failed != 0 && errno == EAGAIN && address.family() == AF_UNIX && !deadline.passed()) {
    (void)poll(nullptr, 0, 1);
    if (given_up(options)) return Status(Code::kUnavailable, what + kNotWanted);
    failed = ::connect(fd.get(), address.get(), address.byte_count);
  }
  if (failed != 0) {
    // After EINTR the attempt goes on by itself, too.
    if (errno != EINPROGRESS && errno != EINTR) return Status::from_errno(errno, what);
    // Before connect() a shutdown() of the descriptor had no effect. From here on it ends every
    // wait.
    if (given_up(options)) return Status(Code::kUnavailable, what + kNotWanted);
    for (;;) {
      pollfd entry = {fd.get(), POLLOUT, 0};
      const int ready = poll(&entry, 1, deadline.poll_timeout_ms());
      if (ready > 0) break;
      if (ready < 0 && errno != EINTR) return Status::from_errno(errno, what);
      if (deadline.passed()) return Status(Code::kDeadline, what + ": no answer");
    }
    int error = 0;
    socklen_t byte_count = sizeof error;
    if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &byte_count) != 0) error = errno;
    if (error != 0 && given_up(options)) return Status(Code::kUnavailable, what + kNotWanted);
    if (error == ETIMEDOUT) return Status(Code::kUnavailable, what + ": no answer");
    if (error != 0) return Status::from_errno(error, what);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Connection>> connect(const SocketAddress& address, Deadline deadline,
                                            const Options& options) {
  UniqueFd fd = kept(options.keeper, [&] {
    return UniqueFd(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  });
  if (Status connected = connect_to(address, fd, deadline, options); !connected.ok()) {
    fd = kept(options.keeper, [&] {
      fd.reset();
      return UniqueFd();
    });
    return connected;
  }
  auto adopted = SocketConnection::adopt(std::move(fd), options);
  if (adopted.ok() || adopted.status().code() != Code::kPeerGone) return adopted;
  return Status(Code::kPeerGone, "tcp " + address.to_string() + ": " + adopted.status().message());
}

Result<std::unique_ptr<Connection>> connect(const HostPort& address, Deadline deadline,
                                            const Options& options) {
  if (address.port == 0) {
    return Status(Code::kInvalidArgument, "port 0 cannot be connected to");
  }
  Result<std::vector<SocketAddress>> addresses = resolve(address, false);
  if (!addresses.ok()) return addresses.status();
  Status last(Code::kUnavailable, "no address");
  for (const SocketAddress& one : *addresses) {
    Result<std::unique_ptr<Connection>> connection = connect(one, deadline, options);
    if (connection.ok()) return connection;
    last = connection.status();
    if (deadline.passed()) break;
  }
  return last;
}

}  // namespace gpurun::transport::sockets
