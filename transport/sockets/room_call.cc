// RoomCall: one socket in an epoll of its own.
#include "transport/sockets/room_call.h"

#include <sys/epoll.h>

#include <cstdint>
#include <utility>

#include "transport/sockets/descriptor.h"

namespace gpurun::transport::sockets {
namespace {

// A failure means that the program has closed one of the two descriptors. Then nobody waits here.
bool control(int epoll, int how, int socket, std::uint32_t events) noexcept {
  epoll_event event = {};
  event.events = events;
  return epoll_ctl(epoll, how, socket, &event) == 0;
}

}  // namespace

std::unique_ptr<RoomCall> RoomCall::of(const SocketConnection& connection) {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return nullptr;
  epoll = move_up(std::move(epoll), connection.fd_min());
  if (!control(epoll.get(), EPOLL_CTL_ADD, connection.fd(), 0)) return nullptr;
  return std::unique_ptr<RoomCall>(new RoomCall(connection, std::move(epoll)));
}

// As for the connection's descriptor: this process must not close what the program has closed and
// may have reused.
RoomCall::~RoomCall() {
  if (connection_.taken_away()) static_cast<void>(epoll_.release());
}

void RoomCall::make() noexcept {
  (void)control(epoll_.get(), EPOLL_CTL_MOD, connection_.fd(), EPOLLOUT);
}

void RoomCall::take_back() noexcept {
  (void)control(epoll_.get(), EPOLL_CTL_MOD, connection_.fd(), 0);
}

}  // namespace gpurun::transport::sockets
