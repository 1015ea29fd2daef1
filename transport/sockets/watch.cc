// SocketWatch: one socket in an epoll of its own. Every call handles EINTR.
#include "transport/sockets/watch.h"

#include <sys/epoll.h>

#include <cerrno>
#include <string>
#include <utility>

#include "transport/sockets/descriptor.h"

namespace gpurun::transport::sockets {
namespace {

constexpr std::uint32_t kComes = EPOLLIN | EPOLLRDHUP;
// What an event of the other descriptor has as its data. The socket's has 0.
constexpr std::uint64_t kBeside = 1;

}  // namespace

Result<std::unique_ptr<SocketWatch>> SocketWatch::of(const SocketConnection& connection, int fd_min,
                                                     int beside) {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  UniqueFd inner(beside >= 0 ? epoll_create1(EPOLL_CLOEXEC) : -1);
  if (!epoll.valid() || (beside >= 0 && !inner.valid())) {
    return Status(Code::kResourceExhausted,
                  connection.description() + ": no descriptor to watch it");
  }
  epoll = move_up(std::move(epoll), fd_min);
  if (inner.valid()) inner = move_up(std::move(inner), fd_min);
  epoll_event event = {};
  event.events = EPOLLONESHOT;
  epoll_event comes = {};
  comes.events = EPOLLIN;
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, connection.fd(), &event) != 0 ||
      (inner.valid() && (epoll_ctl(inner.get(), EPOLL_CTL_ADD, beside, &comes) != 0 ||
                         epoll_ctl(epoll.get(), EPOLL_CTL_ADD, inner.get(), &event) != 0))) {
    return Status::from_errno(errno, connection.description() + ": watching");
  }
  return std::unique_ptr<SocketWatch>(
      new SocketWatch(connection, std::move(epoll), std::move(inner)));
}

// As for the connection's descriptor: this process must not close what the program has closed and
// may have reused.
SocketWatch::~SocketWatch() {
  if (!connection_.taken_away()) return;
  static_cast<void>(epoll_.release());
  static_cast<void>(beside_.release());
}

void SocketWatch::arm(std::uint32_t events) noexcept {
  std::uint32_t wanted = EPOLLONESHOT | events;
  if (events != 0 && wants_room_.load(std::memory_order_relaxed)) wanted |= EPOLLOUT;
  // A failure means that the program has closed one of the two descriptors. wait() finds that.
  if (std::exchange(armed_, wanted) != wanted || !beside_.valid()) {
    epoll_event event = {};
    event.events = wanted;
    (void)epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection_.fd(), &event);
  }
  if (beside_.valid()) arm_beside(events & ~static_cast<std::uint32_t>(EPOLLOUT));
}

void SocketWatch::arm_beside(std::uint32_t events) noexcept {
  const std::uint32_t wanted = EPOLLONESHOT | events;
  if (std::exchange(armed_beside_, wanted) == wanted) return;
  epoll_event event = {};
  event.events = wanted;
  event.data.u64 = kBeside;
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, beside_.get(), &event);
}

Status SocketWatch::wait(Deadline deadline) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    woken_by_beside_ = false;
    if (pauses_ == 0 && std::exchange(woken_, false)) return {};
    // Bytes that have come since it was armed last make it fire at once.
    if (pauses_ == 0) arm(kComes);
  }
  for (;;) {
    if (connection_.taken_away()) {
      return Status(Code::kUnavailable, "the program has closed gpurun's descriptor " +
                                            std::to_string(connection_.fd()));
    }
    epoll_event event = {};
    const int ready = epoll_wait(epoll_.get(), &event, 1, deadline.poll_timeout_ms());
    if (ready > 0) {
      const std::lock_guard<std::mutex> lock(mutex_);
      woken_ = false;
      woken_by_beside_ = event.data.u64 == kBeside;
      (woken_by_beside_ ? armed_beside_ : armed_) = 0;
      return {};
    }
    if (ready < 0 && errno != EINTR) {
      return Status(Code::kUnavailable,
                    "the program has closed gpurun's descriptor " + std::to_string(epoll_.get()));
    }
    if (deadline.passed()) return Status(Code::kDeadline, connection_.description() + ": watching");
  }
}

void SocketWatch::pause() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (pauses_++ == 0 && !connection_.taken_away()) arm(0);
}

// As in resume(), arming a foreign file fails harmlessly.
void SocketWatch::pause_beside() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (pauses_++ == 0 && beside_.valid()) arm_beside(0);
}

void SocketWatch::resume() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  // No check for taken_away(): the thread that pauses calls soon again and checks then. A foreign
  // socket under the number is not in our epoll, so arming it fails harmlessly.
  if (--pauses_ == 0) arm(kComes);
}

void SocketWatch::want_room(bool wanted) noexcept {
  if (wants_room_.load(std::memory_order_relaxed) == wanted) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  wants_room_.store(wanted, std::memory_order_relaxed);
  if (wanted && pauses_ == 0 && !connection_.taken_away()) arm(kComes);
}

void SocketWatch::wake() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (connection_.taken_away()) return;  // wait() finds out.
  woken_ = true;
  // EPOLLOUT fires at once, because a socket that is not full is always writable.
  if (pauses_ == 0) arm(kComes | EPOLLOUT);
}

}  // namespace gpurun::transport::sockets
