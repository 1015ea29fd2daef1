// Local sockets of the verbs double: addresses by QP number, and frames.
#include "tests/drivers/verbs/stream.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace gpurun::verbs_double {
namespace {

constexpr int kBacklog = 16;

struct Address {
  sockaddr_un name{};
  socklen_t size = 0;
  bool is_file = false;
};

bool address_of(const std::string& fabric, std::uint32_t number, Address& address) {
  address.is_file = fabric.find('/') != std::string::npos;
  char digits[16];
  std::snprintf(digits, sizeof(digits), "/%06x", number);
  const std::string text =
      (address.is_file ? fabric : std::string(1, '\0') + "verbs-double/" + fabric) + digits;
  if (text.size() >= sizeof(address.name.sun_path)) {
    errno = ENAMETOOLONG;
    return false;
  }
  address.name.sun_family = AF_UNIX;
  std::memcpy(address.name.sun_path, text.data(), text.size());
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size() +
                                        (address.is_file ? 1 : 0));
  return true;
}

int open_socket() {
  return set_aside(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

int fail(int descriptor) {
  const int error = errno;
  if (descriptor >= 0) ::close(descriptor);
  errno = error;
  return -1;
}

}  // namespace

int set_aside(int descriptor) {
  constexpr rlim_t kAside = 10'000;
  rlimit limit{};
  if (descriptor < 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0) return descriptor;
  const int error = errno;
  const int moved =
      fcntl(descriptor, F_DUPFD_CLOEXEC, static_cast<int>(std::min(limit.rlim_cur / 2, kAside)));
  errno = error;
  if (moved < 0) return descriptor;
  ::close(descriptor);
  return moved;
}

int bind_qp(const std::string& fabric, std::uint32_t number) {
  Address address;
  if (!address_of(fabric, number, address)) return -1;
  const int descriptor = open_socket();
  if (descriptor < 0 ||
      bind(descriptor, reinterpret_cast<sockaddr*>(&address.name), address.size) != 0 ||
      listen(descriptor, kBacklog) != 0) {
    return fail(descriptor);
  }
  return descriptor;
}

void unbind_qp(int descriptor, const std::string& fabric, std::uint32_t number) {
  if (descriptor < 0) return;
  shutdown(descriptor, SHUT_RDWR);  // The NIC's poll() may keep the socket after close().
  ::close(descriptor);
  Address address;
  if (address_of(fabric, number, address) && address.is_file) unlink(address.name.sun_path);
}

int connect_qp(const std::string& fabric, std::uint32_t number) {
  Address address;
  if (!address_of(fabric, number, address)) return -1;
  const int descriptor = open_socket();
  if (descriptor < 0 ||
      connect(descriptor, reinterpret_cast<sockaddr*>(&address.name), address.size) != 0) {
    return fail(descriptor);
  }
  return descriptor;
}

void Stream::open(int descriptor) noexcept {
  close();
  descriptor_ = descriptor;
}

void Stream::close() noexcept {
  if (descriptor_ >= 0) {
    shutdown(descriptor_, SHUT_RDWR);  // The NIC's poll() may keep the socket after close().
    ::close(std::exchange(descriptor_, -1));
  }
  out_.clear();
  payload_.clear();
  sent_ = frame_filled_ = payload_filled_ = 0;
}

void Stream::put(Frame frame, const std::vector<std::byte>& payload) {
  frame.payload = payload.size();
  const auto* bytes = reinterpret_cast<const std::byte*>(&frame);
  out_.insert(out_.end(), bytes, bytes + sizeof(frame));
  out_.insert(out_.end(), payload.begin(), payload.end());
}

bool Stream::flush() {
  while (unsent() > 0) {
    const ssize_t sent = send(descriptor_, out_.data() + sent_, unsent(), MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    sent_ += static_cast<std::size_t>(sent);
  }
  out_.clear();
  sent_ = 0;
  return true;
}

Stream::Received Stream::fill(void* place, std::size_t size, std::size_t& filled) {
  while (filled < size) {
    const ssize_t got = recv(descriptor_, static_cast<char*>(place) + filled, size - filled, 0);
    if (got == 0) return Received::kGone;
    if (got < 0) {
      return errno == EAGAIN || errno == EINTR ? Received::kNothing : Received::kGone;
    }
    filled += static_cast<std::size_t>(got);
  }
  return Received::kFrame;
}

Stream::Received Stream::next(Frame& frame, std::vector<std::byte>& payload,
                              std::uint64_t payload_max) {
  if (!is_open()) return Received::kGone;
  if (frame_filled_ < sizeof(frame_)) {
    const Received header = fill(&frame_, sizeof(frame_), frame_filled_);
    if (header != Received::kFrame) return header;
    if (frame_.magic != kFrameMagic || frame_.payload > payload_max) return Received::kGone;
    payload_.resize(frame_.payload);
  }
  const Received body = fill(payload_.data(), payload_.size(), payload_filled_);
  if (body != Received::kFrame) return body;
  frame = frame_;
  payload = std::move(payload_);
  payload_.clear();
  frame_filled_ = payload_filled_ = 0;
  return Received::kFrame;
}

}  // namespace gpurun::verbs_double
