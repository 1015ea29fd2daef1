// What the machine gives without CUDA, in the same run: a 64-byte ping-pong and a stream over TCP
// loopback between two processes, and memcpy. The bars of the paths are ratios to these.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "tests/bench/calls/bench.h"

namespace gpurun::bench {
namespace {

constexpr int kPings = 4000;
constexpr std::size_t kPing = 64;
constexpr int kStreams = 5;
constexpr std::size_t kPiece = std::size_t{1} << 20;

void check(bool fine, const char* what) {
  if (fine) return;
  std::perror(what);
  std::_Exit(1);
}

void send_all(int socket, const char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t sent = ::send(socket, data, size, MSG_NOSIGNAL);
    check(sent > 0, "send");
    data += sent;
    size -= static_cast<std::size_t>(sent);
  }
}

void receive_all(int socket, char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t got = ::recv(socket, data, size, 0);
    check(got > 0, "recv");
    data += got;
    size -= static_cast<std::size_t>(got);
  }
}

// Both ends copy each piece once, as whoever hands bytes to a device must.
void send_stream(int socket, const std::vector<char>& source) {
  std::vector<char> piece(kPiece);
  for (std::size_t at = 0; at < source.size(); at += kPiece) {
    std::memcpy(piece.data(), source.data() + at, kPiece);
    send_all(socket, piece.data(), kPiece);
  }
}

void receive_stream(int socket, std::vector<char>* into) {
  std::vector<char> piece(kPiece);
  for (std::size_t at = 0; at < into->size(); at += kPiece) {
    receive_all(socket, piece.data(), kPiece);
    std::memcpy(into->data() + at, piece.data(), kPiece);
  }
}

int connect_to(const sockaddr_in& address) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  check(socket >= 0, "socket");
  check(::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0,
        "connect");
  return socket;
}

void no_delay(int socket) {
  const int on = 1;
  check(setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0, "TCP_NODELAY");
}

// The other process: answers pings, then takes streams and acknowledges each.
[[noreturn]] void serve(const sockaddr_in& address) {
  const int socket = connect_to(address);
  no_delay(socket);
  char ping[kPing];
  for (int i = 0; i < kPings; ++i) {
    receive_all(socket, ping, kPing);
    send_all(socket, ping, kPing);
  }
  std::vector<char> into(Stage::kBytes);
  for (int i = 0; i < kStreams; ++i) {
    receive_stream(socket, &into);
    send_all(socket, ping, 1);
  }
  std::_Exit(0);
}

}  // namespace

void measure_baselines(Results* results) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  check(listener >= 0, "socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  check(::bind(listener, reinterpret_cast<sockaddr*>(&address), length) == 0, "bind");
  check(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0,
        "getsockname");
  check(::listen(listener, 1) == 0, "listen");
  const pid_t child = fork();
  check(child >= 0, "fork");
  if (child == 0) serve(address);
  const int socket = ::accept(listener, nullptr, nullptr);
  check(socket >= 0, "accept");
  no_delay(socket);

  Row pings{"raw 64-byte ping-pong", "ns", {}};
  char ping[kPing] = {};
  for (int i = 0; i < kPings; ++i) {
    const Clock::time_point start = Clock::now();
    send_all(socket, ping, kPing);
    receive_all(socket, ping, kPing);
    pings.samples.push_back(nanoseconds(Clock::now() - start));
  }
  results->add(std::move(pings));

  Row streams{"raw stream, a memcpy at each end", "GB/s", {}};
  Row copies{"memcpy 64 MiB", "GB/s", {}};
  const std::vector<char> source(Stage::kBytes, 'x');
  std::vector<char> copy(Stage::kBytes, 'y');
  for (int i = 0; i < kStreams; ++i) {
    Clock::time_point start = Clock::now();
    send_stream(socket, source);
    receive_all(socket, ping, 1);
    streams.samples.push_back(static_cast<double>(source.size()) /
                              nanoseconds(Clock::now() - start));
    start = Clock::now();
    std::memcpy(copy.data(), source.data(), source.size());
    copies.samples.push_back(static_cast<double>(source.size()) /
                             nanoseconds(Clock::now() - start));
  }
  results->add(std::move(streams));
  results->add(std::move(copies));
  ::close(socket);
  ::close(listener);
  waitpid(child, nullptr, 0);
}

}  // namespace gpurun::bench
