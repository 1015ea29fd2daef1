// Ends: forks the other end and pins both.
#include "tests/bench/raw/ends.h"

#include <linux/futex.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <new>

namespace gpurun::bench {
namespace {

// The first core that this process may use, or the second.
void pin(Placement placement, int which) {
  static cpu_set_t allowed = [] {
    cpu_set_t set;
    check(sched_getaffinity(0, sizeof set, &set) == 0, "sched_getaffinity");
    return set;
  }();
  if (placement == Placement::kFree) return;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || which-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    check(sched_setaffinity(0, sizeof one, &one) == 0, "sched_setaffinity");
    return;
  }
}

void prepare(int socket, Pacing pacing) {
  const int on = 1;
  check(setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0, "TCP_NODELAY");
  if (pacing == Pacing::kAsTheSystem) return;
  check(setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, "reno", 4) == 0, "TCP_CONGESTION");
}

std::vector<int> connect_to(const sockaddr_in& address, int connections, Pacing pacing) {
  std::vector<int> sockets;
  for (int i = 0; i < connections; ++i) {
    sockets.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    check(sockets.back() >= 0, "socket");
    check(connect(sockets.back(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0,
          "connect");
    prepare(sockets.back(), pacing);
  }
  return sockets;
}

}  // namespace

void check(bool fine, const char* what) {
  if (fine) return;
  std::perror(what);
  std::_Exit(1);
}

void send_all(int socket, const char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t sent = ::send(socket, data, size, MSG_NOSIGNAL);
    if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) std::_Exit(1);
    check(sent > 0, "send");
    data += sent;
    size -= static_cast<std::size_t>(sent);
  }
}

void receive_all(int socket, char* data, std::size_t size, Waiting waiting) {
  const bool awake = waiting == Waiting::kAwake;
  while (size > 0) {
    const ssize_t got = ::recv(socket, data, size, awake ? MSG_DONTWAIT : 0);
    if (got < 0 && errno == EAGAIN && awake) {
      sched_yield();
      continue;
    }
    if (got == 0 || (got < 0 && errno == ECONNRESET)) std::_Exit(1);
    check(got > 0, "recv");
    data += got;
    size -= static_cast<std::size_t>(got);
  }
}

Pair::Pair(Placement placement, int connections, const Serve& serve, Pacing pacing) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  check(listener >= 0, "socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  check(bind(listener, reinterpret_cast<sockaddr*>(&address), length) == 0, "bind");
  check(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0, "getsockname");
  check(listen(listener, connections) == 0, "listen");
  child_ = fork();
  check(child_ >= 0, "fork");
  pin(placement, child_ == 0 ? 1 : 0);
  if (child_ == 0) {
    close(listener);
    serve(connect_to(address, connections, pacing));
    std::_Exit(0);
  }
  for (int i = 0; i < connections; ++i) {
    sockets_.push_back(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    check(sockets_.back() >= 0, "accept");
    prepare(sockets_.back(), pacing);
  }
  close(listener);
}

Pair::~Pair() {
  for (const int socket : sockets_) close(socket);
  waitpid(child_, nullptr, 0);
}

void FutexPair::pass_to(Word* word, std::uint32_t turn) {
  word->turn.store(turn, std::memory_order_release);
  syscall(SYS_futex, &word->turn, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

void FutexPair::wait_for(Word* word, std::uint32_t turn) {
  while (word->turn.load(std::memory_order_acquire) != turn) {
    syscall(SYS_futex, &word->turn, FUTEX_WAIT, 1 - turn, nullptr, nullptr, 0);
  }
}

FutexPair::FutexPair(Placement placement, int pings) {
  void* shared =
      mmap(nullptr, sizeof(Word), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  check(shared != MAP_FAILED, "mmap");
  word_ = new (shared) Word;
  child_ = fork();
  check(child_ >= 0, "fork");
  pin(placement, child_ == 0 ? 1 : 0);
  if (child_ != 0) return;
  for (int i = 0; i < pings; ++i) {
    wait_for(word_, 1);
    pass_to(word_, 0);
  }
  std::_Exit(0);
}

FutexPair::~FutexPair() {
  waitpid(child_, nullptr, 0);
  munmap(word_, sizeof(Word));
}

void FutexPair::ping() const {
  pass_to(word_, 1);
  wait_for(word_, 0);
}

}  // namespace gpurun::bench
