// The client's side of the broker, and the socket of both sides.
#include "client/attach/broker.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/descriptor_identity.h"
#include "base/descriptor_message.h"
#include "base/printable.h"
#include "transport/sockets/connection.h"
#include "transport/sockets/descriptor.h"

namespace gpurun::client {
namespace {

// The reply has so much time after the broker has given up.
constexpr std::chrono::seconds kReplyWithin{1};

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

Status cannot_connect(const std::string& path, int error) {
  const std::string what = path + ": " + std::strerror(error);
  if (error == EAGAIN) {
    return Status(Code::kDeadline, path +
                                       ": gpurun, which opens connections there, takes no "
                                       "request in time");
  }
  if (error == EACCES || error == EPERM) {
    return Status(Code::kRefused,
                  what + ": this program's user may not use gpurun's session folder");
  }
  return Status(Code::kPeerGone, what +
                                     ": gpurun, which opens connections there, has ended, or its "
                                     "session folder is not mounted here");
}

// One request. Its socket, and the connection later, are the descriptor that the keeper has.
class Request {
 public:
  Request(const std::string& path, Deadline deadline, const transport::Options& options)
      : path_(path), deadline_(deadline), options_(options) {}
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  ~Request() {
    if (!fd_.valid()) return;
    before_change();
    close_socket();
    after_change(-1);
  }

  Status send(BrokerKind kind);
  Status wait_for_reply();
  Result<std::unique_ptr<transport::Connection>> take_reply();

 private:
  void before_change() {
    if (options_.keeper != nullptr) options_.keeper->before_change();
  }
  void after_change(int fd) {
    if (options_.keeper != nullptr) options_.keeper->after_change(fd);
  }
  bool given_up() const { return options_.keeper != nullptr && !options_.keeper->wanted(); }
  Status not_wanted() const {
    return Status(Code::kUnavailable, path_ + ": the connection is not wanted any more");
  }
  // The program may have closed the descriptor, and its number may be another file's.
  bool taken_away() const { return !identity_.holds(fd_.get()); }
  void close_socket() {
    if (taken_away()) static_cast<void>(fd_.release());
    fd_.reset();
  }
  Result<std::unique_ptr<transport::Connection>> receive();

  const std::string& path_;
  const Deadline deadline_;
  const transport::Options& options_;
  UniqueFd fd_;
  DescriptorIdentity identity_;
};

Status Request::send(BrokerKind kind) {
  const Result<sockaddr_un> address = address_of(path_);
  if (!address.ok()) return address.status();
  before_change();
  fd_ = transport::sockets::move_up(message_socket(), options_.fd_min);
  const int error = errno;
  identity_ = DescriptorIdentity::of(fd_.get());
  after_change(fd_.get());
  if (!fd_.valid()) return Status::from_errno(error, "a socket for " + path_);
  while (connect(fd_.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0) {
    // The backlog is full. No event reports that it has room again.
    if ((errno != EAGAIN && errno != EINTR) || deadline_.passed()) {
      return cannot_connect(path_, errno);
    }
    if (given_up()) return not_wanted();
    (void)poll(nullptr, 0, 1);
  }
  const BrokerRequest request = {kind, static_cast<std::uint32_t>(deadline_.poll_timeout_ms())};
  return send_message(fd_.get(), byte_view(&request, sizeof request), {}, Wait::kNever);
}

// The kernel takes the request at once, so only the reply is waited for. A thread that gives the
// connection up shuts its socket down, which ends the wait.
Status Request::wait_for_reply() {
  if (given_up()) return not_wanted();
  const Deadline reply =
      deadline_.is_never() ? deadline_ : Deadline::in(deadline_.remaining() + kReplyWithin);
  for (;;) {
    pollfd entry = {fd_.get(), POLLIN, 0};
    if (poll(&entry, 1, reply.poll_timeout_ms()) > 0) return given_up() ? not_wanted() : Status();
    if (reply.passed()) {
      return Status(Code::kDeadline, path_ + ": gpurun has opened no connection in time");
    }
  }
}

Result<std::unique_ptr<transport::Connection>> Request::receive() {
  if (taken_away()) {
    return Status(Code::kUnavailable, "the program has closed gpurun's descriptor");
  }
  Result<DescriptorMessage> reply = receive_message(fd_.get(), kBrokerReplyBytesMax, Wait::kNever);
  if (!reply.ok()) return reply.status();
  const bool given = reply->bytes.front() == std::byte{1};
  if (given && reply->attached.size() == 1) {
    transport::Options options = options_;
    options.keeper = nullptr;  // It gets the descriptor from take_reply().
    return transport::sockets::SocketConnection::adopt(std::move(reply->attached.front()), options);
  }
  if (given || !reply->attached.empty()) {
    return Status(Code::kProtocol, "gpurun's reply has no single connection");
  }
  const char* text = reinterpret_cast<const char*>(reply->bytes.data()) + 1;
  return Status(Code::kUnavailable, printable({text, reply->bytes.size() - 1}, ' '));
}

// No child of this process is made between the moments when the connection comes and when the
// keeper has it.
Result<std::unique_ptr<transport::Connection>> Request::take_reply() {
  before_change();
  Result<std::unique_ptr<transport::Connection>> connection = receive();
  close_socket();
  after_change(connection.ok() ? (*connection)->fd() : -1);
  if (!connection.ok() || !given_up()) return connection;
  before_change();
  connection = not_wanted();
  after_change(-1);
  return connection;
}

}  // namespace

Result<UniqueFd> listen_as_broker(int folder, const std::string& name, const std::string& path) {
  // The kernel has no bind() relative to a folder.
  const Result<sockaddr_un> address =
      address_of("/proc/self/fd/" + std::to_string(folder) + "/" + name);
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
  Request request(path, deadline, options);
  GPURUN_RETURN_IF_ERROR(request.send(kind));
  GPURUN_RETURN_IF_ERROR(request.wait_for_reply());
  return request.take_reply();
}

}  // namespace gpurun::client
