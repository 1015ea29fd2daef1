// Service notifications: one datagram for each.
#include "server/daemon/daemon_notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "base/unique_fd.h"

namespace gpurun::server {

void notify_service_manager(const std::string& state) {
  const char* path = getenv("NOTIFY_SOCKET");
  sockaddr_un address = {};
  // A name in the file system or, after an @, an abstract one.
  if (path == nullptr || (path[0] != '/' && path[0] != '@')) return;
  const std::size_t bytes = std::strlen(path);
  if (bytes >= sizeof address.sun_path) return;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path, bytes);
  if (path[0] == '@') address.sun_path[0] = '\0';
  const UniqueFd socket_fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket_fd.valid()) return;
  static_cast<void>(sendto(socket_fd.get(), state.data(), state.size(), MSG_NOSIGNAL,
                           reinterpret_cast<const sockaddr*>(&address),
                           static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + bytes)));
}

void notify_reloading() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const long long microseconds = now.tv_sec * 1'000'000LL + now.tv_nsec / 1'000;
  notify_service_manager("RELOADING=1\nMONOTONIC_USEC=" + std::to_string(microseconds));
}

}  // namespace gpurun::server
