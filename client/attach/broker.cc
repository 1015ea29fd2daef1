// The client's side of the broker, and the socket of both sides.
#include "client/attach/broker.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/descriptor_message.h"
#include "base/printable.h"
#include "transport/sockets/connection.h"

namespace gpurun::client {
namespace {

Result<sockaddr_un> address_of(const std::string& path) {
  if (path.size() > kSocketPathBytesMax) {
    return Status(Code::kInvalidArgument, "the path of the socket " + path + " has more than " +
                                              std::to_string(kSocketPathBytesMax) +
                                              " bytes, which the kernel does not take");
  }
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  return address;
}

UniqueFd message_socket() {
  return UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

Result<UniqueFd> reach(const std::string& path, Deadline deadline) {
  const Result<sockaddr_un> address = address_of(path);
  if (!address.ok()) return address.status();
  UniqueFd fd = message_socket();
  if (!fd.valid()) return Status::from_errno(errno, "a socket for " + path);
  for (;;) {
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) == 0) {
      return fd;
    }
    // The backlog is full. No event reports that it has room again.
    if ((errno == EAGAIN || errno == EINTR) && !deadline.passed()) {
      (void)poll(nullptr, 0, 1);
      continue;
    }
    return Status(Code::kPeerGone,
                  path + ": " + std::strerror(errno) +
                      ": gpurun, which opens connections there, has ended, or its session folder "
                      "is not mounted here");
  }
}

Status not_wanted() { return Status(Code::kUnavailable, "the connection is not wanted any more"); }

// The kernel takes the request at once, so only the reply is waited for. A thread that gives the
// connection up cannot shut down a descriptor that is not here yet. So this asks now and then.
Status wait_for_reply(int fd, Deadline deadline, transport::DescriptorKeeper* keeper) {
  constexpr int kLookMs = 20;
  for (;;) {
    const int all_ms = deadline.poll_timeout_ms();
    pollfd entry = {fd, POLLIN, 0};
    if (poll(&entry, 1, keeper == nullptr ? all_ms : std::min(all_ms, kLookMs)) > 0) return {};
    if (keeper != nullptr && !keeper->wanted()) return not_wanted();
    if (deadline.passed())
      return Status(Code::kDeadline, "gpurun has opened no connection in time");
  }
}

Result<std::unique_ptr<transport::Connection>> take_reply(int fd, transport::Options options) {
  options.keeper = nullptr;
  Result<DescriptorMessage> reply = receive_message(fd, kBrokerReplyBytesMax, Wait::kNever);
  if (!reply.ok()) return reply.status();
  const bool given = reply->bytes.front() == std::byte{1};
  if (given && reply->attached.size() == 1) {
    return transport::sockets::SocketConnection::adopt(std::move(reply->attached.front()), options);
  }
  if (given || !reply->attached.empty()) {
    return Status(Code::kProtocol, "gpurun's reply has no single connection");
  }
  const char* text = reinterpret_cast<const char*>(reply->bytes.data()) + 1;
  return Status(Code::kUnavailable, printable({text, reply->bytes.size() - 1}, ' '));
}

}  // namespace

Result<UniqueFd> listen_as_broker(const std::string& path) {
  const Result<sockaddr_un> address = address_of(path);
  if (!address.ok()) return address.status();
  UniqueFd fd = message_socket();
  // bind() makes the file with the mode of the socket (unix(7)).
  if (!fd.valid() || fchmod(fd.get(), 0600) != 0 ||
      bind(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0) {
    return Status::from_errno(errno, path);
  }
  return fd;
}

Result<std::unique_ptr<transport::Connection>> connect_by_broker(
    const std::string& path, BrokerKind kind, Deadline deadline,
    const transport::Options& options) {
  const Result<UniqueFd> fd = reach(path, deadline);
  if (!fd.ok()) return fd.status();
  const std::array<std::byte, 1> request = {static_cast<std::byte>(kind)};
  GPURUN_RETURN_IF_ERROR(send_message(fd->get(), request, {}, Wait::kNever));
  transport::DescriptorKeeper* const keeper = options.keeper;
  GPURUN_RETURN_IF_ERROR(wait_for_reply(fd->get(), deadline, keeper));
  if (keeper != nullptr) keeper->before_change();  // No child may get the connection.
  Result<std::unique_ptr<transport::Connection>> connection = take_reply(fd->get(), options);
  if (keeper != nullptr) keeper->after_change(connection.ok() ? (*connection)->fd() : -1);
  if (connection.ok() && keeper != nullptr && !keeper->wanted()) {
    keeper->before_change();
    connection = not_wanted();
    keeper->after_change(-1);
  }
  return connection;
}

}  // namespace gpurun::client
