// TLS hello: peeks, so that the next owner finds the handshake whole.
#include "server/daemon/links/tls_hello.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>

#include "protocol/limits.h"

namespace gpurun::server {
namespace {

namespace tls = transport::tls;

// For an alert, which is only a courtesy.
constexpr std::chrono::milliseconds kAlertDeadline{100};

// Peeks at the first `bytes` that have come, and leaves them unread. A peek returns nothing beyond
// a byte that was sent as urgent (tcp(7), unix(7)), although poll() returns. So a peek ends the
// link when it gets no more than the one before it, although poll() reports enough.
Result<Bytes> peek_waiting(int fd, std::size_t bytes, Deadline deadline) {
  Bytes seen(bytes);
  bool told = false, left = false;
  ssize_t told_of = -1;  // The result of a peek after poll() had reported enough.
  for (;;) {
    const ssize_t got = recv(fd, seen.data(), seen.size(), MSG_PEEK | MSG_DONTWAIT);
    if (got == static_cast<ssize_t>(bytes)) return seen;
    if (got < 0 && errno != EAGAIN && errno != EINTR) return Status::from_errno(errno, "peek");
    const ssize_t has = std::max<ssize_t>(got, 0);
    if (got == 0 || (told && left)) {
      return Status(Code::kPeerGone, "the peer left before it identified itself");
    }
    if (told && has <= told_of) {
      return Status(Code::kProtocol, "the peer sent urgent data where its first words belong");
    }
    if (told) told_of = has;
    if (deadline.passed()) return Status(Code::kDeadline, "it does not identify itself");
    pollfd ready = {fd, POLLIN | POLLRDHUP, 0};
    told = poll(&ready, 1, deadline.poll_timeout_ms()) > 0;
    left = told && (ready.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
  }
}

Result<Bytes> peek(int fd, std::size_t bytes, Deadline deadline) {
  const auto wanted = static_cast<int>(bytes);
  // Makes it readable only when that many bytes have come.
  if (setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof wanted) != 0) {
    return Status::from_errno(errno, "SO_RCVLOWAT");
  }
  Result<Bytes> seen = peek_waiting(fd, bytes, deadline);
  const int one = 1;
  setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof one);
  return seen;
}

}  // namespace

Result<Bytes> peek_hello(int fd, Deadline deadline) {
  const Result<Bytes> head = peek(fd, tls::kHelloHeadBytes, deadline);
  if (!head.ok()) return head.status();
  const Result<std::size_t> bytes = tls::hello_record_bytes(*head);
  if (!bytes.ok()) return bytes.status();
  if (*bytes > limits::kHelloBytesMax) {
    return Status(Code::kTooLarge, "a ClientHello of " + std::to_string(*bytes) + " bytes");
  }
  return peek(fd, *bytes, deadline);
}

Result<bool> begins_with_tls(const transport::Connection& connection, Deadline deadline) {
  if (connection.fd() < 0) return false;  // A test's, without a descriptor.
  const Result<Bytes> first = peek(connection.fd(), 1, deadline);
  if (!first.ok()) return first.status();
  return first->front() == tls::kHandshakeByte;
}

void refuse_in_tls(transport::Connection& connection, transport::tls::Alert alert) {
  std::array<std::byte, limits::kHelloBytesMax> dropped;
  if (connection.fd() >= 0) {
    static_cast<void>(recv(connection.fd(), dropped.data(), dropped.size(), MSG_DONTWAIT));
  }
  const Bytes record = tls::alert_record(alert);
  const ByteView part(record);
  static_cast<void>(connection.send({&part, 1}, Deadline::in(kAlertDeadline)));
}

}  // namespace gpurun::server
