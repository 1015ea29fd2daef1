// Socket addresses: parsing, name lookup and printing.
#include "transport/sockets/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

namespace gpurun::transport::sockets {
namespace {

Result<std::uint16_t> parse_port(std::string_view digits, std::string_view whole) {
  std::uint32_t port = 0;
  bool good = !digits.empty() && digits.size() <= 5;
  for (const char digit : digits) {
    if (digit < '0' || digit > '9') good = false;
    port = port * 10 + static_cast<std::uint32_t>(digit - '0');
  }
  if (!good || port > 65535) {
    return Status(Code::kInvalidArgument,
                  "'" + std::string(whole) + "' has no valid port; write HOST:PORT, PORT 0..65535");
  }
  return static_cast<std::uint16_t>(port);
}

Status bad_host(std::string_view whole) {
  return Status(Code::kInvalidArgument, "'" + std::string(whole) +
                                            "' is no HOST[:PORT]; an IPv6 address goes in "
                                            "brackets: [::1]:4790");
}

}  // namespace

Result<HostPort> parse_host_port(std::string_view text, std::uint16_t default_port) {
  HostPort parsed{{}, default_port};
  std::string_view host = text;
  std::string_view port;
  bool has_port = false;
  if (!text.empty() && text.front() == '[') {
    const std::size_t close = text.find(']');
    if (close == std::string_view::npos) return bad_host(text);
    host = text.substr(1, close - 1);
    const std::string_view rest = text.substr(close + 1);
    if (!rest.empty() && rest.front() != ':') return bad_host(text);
    has_port = !rest.empty();
    if (has_port) port = rest.substr(1);
  } else if (const std::size_t colon = text.find(':'); colon != std::string_view::npos) {
    if (text.find(':', colon + 1) == std::string_view::npos) {
      host = text.substr(0, colon);
      port = text.substr(colon + 1);
      has_port = true;
    }
  }
  if (host.empty() || host.size() > 255) return bad_host(text);
  for (const char letter : host) {
    const bool known = (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
                       (letter >= 'A' && letter <= 'Z') || std::strchr("-._:%", letter) != nullptr;
    if (!known || letter == '\0') return bad_host(text);
  }
  parsed.host = std::string(host);
  if (has_port) {
    Result<std::uint16_t> number = parse_port(port, text);
    if (!number.ok()) return number.status();
    parsed.port = *number;
  }
  return parsed;
}

std::string format_host_port(const HostPort& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return (v6 ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

namespace {

// An IPv4 address mapped into IPv6, as a socket that listens for both reports it.
bool is_mapped(const sockaddr_storage& storage) {
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage);
  return storage.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr);
}

}  // namespace

bool SocketAddress::is_loopback() const {
  if (family() == AF_UNIX) return true;
  if (family() == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&storage);
    return (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
  }
  if (family() == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage);
    if (is_mapped(storage)) return v6->sin6_addr.s6_addr[12] == 127;
    return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) != 0;
  }
  return false;
}

std::string SocketAddress::to_string() const {
  if (family() == AF_UNIX) {
    const auto* local = reinterpret_cast<const sockaddr_un*>(&storage);
    const std::size_t before = offsetof(sockaddr_un, sun_path) + 1;
    if (byte_count <= before) return "unix:";  // The connecting end has no name.
    return "unix:" + std::string(local->sun_path + 1, byte_count - before);
  }
  SocketAddress plain;
  if (is_mapped(storage)) {
    // As the other end, which may not know IPv6, writes it.
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage);
    auto* const v4 = reinterpret_cast<sockaddr_in*>(&plain.storage);
    v4->sin_family = AF_INET;
    v4->sin_port = v6->sin6_port;
    std::memcpy(&v4->sin_addr, &v6->sin6_addr.s6_addr[12], sizeof v4->sin_addr);
    plain.byte_count = sizeof *v4;
    return plain.to_string();
  }
  char host[NI_MAXHOST] = "?";
  char port[NI_MAXSERV] = "0";
  if (getnameinfo(get(), byte_count, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "unknown address";
  }
  const bool v6 = std::strchr(host, ':') != nullptr;
  return (v6 ? "[" + std::string(host) + "]" : std::string(host)) + ":" + port;
}

Result<std::vector<SocketAddress>> resolve(const HostPort& address, bool to_listen) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | AI_NUMERICHOST | (to_listen ? AI_PASSIVE : 0);
  const std::string port = std::to_string(address.port);
  addrinfo* found = nullptr;
  int error = getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found);
  if (error == EAI_NONAME) {
    hints.ai_flags &= ~AI_NUMERICHOST;
    error = getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found);
  }
  if (error != 0) {
    return Status(Code::kUnavailable,
                  "cannot find host '" + address.host + "': " + std::string(gai_strerror(error)));
  }
  std::vector<SocketAddress> addresses;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_addrlen > sizeof(sockaddr_storage)) continue;
    SocketAddress one;
    std::memcpy(&one.storage, entry->ai_addr, entry->ai_addrlen);
    one.byte_count = entry->ai_addrlen;
    addresses.push_back(one);
  }
  freeaddrinfo(found);
  if (addresses.empty()) {
    return Status(Code::kUnavailable, "host '" + address.host + "' has no address");
  }
  return addresses;
}

Result<SocketAddress> local_name(std::string_view name) {
  if (name.empty() || name.size() > kLocalNameMax) {
    return Status(Code::kInvalidArgument,
                  "'" + std::string(name.substr(0, kLocalNameMax)) + "' names no local socket");
  }
  SocketAddress address;
  auto* const local = reinterpret_cast<sockaddr_un*>(&address.storage);
  local->sun_family = AF_UNIX;
  std::memcpy(local->sun_path + 1, name.data(), name.size());
  address.byte_count = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

namespace {

Result<SocketAddress> socket_name(int fd, int (*ask)(int, sockaddr*, socklen_t*)) {
  SocketAddress name;
  name.byte_count = sizeof name.storage;
  if (ask(fd, reinterpret_cast<sockaddr*>(&name.storage), &name.byte_count) != 0) {
    return Status::from_errno(errno, "reading a socket's address");
  }
  return name;
}

}  // namespace

Result<SocketAddress> local_address(int fd) { return socket_name(fd, getsockname); }
Result<SocketAddress> peer_address(int fd) { return socket_name(fd, getpeername); }

}  // namespace gpurun::transport::sockets
