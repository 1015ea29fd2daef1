// Socket addresses: HOST:PORT as people write it, local names, and the form that the kernel takes.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace gpurun::transport::sockets {

struct HostPort {
  std::string host;  // Without brackets.
  std::uint16_t port = 0;
};

// Parses "host", "host:port", "[v6]", "[v6]:port", or a bare IPv6 address with several colons (then
// without a port). `default_port` applies where no port is written. kInvalidArgument says what is
// wrong.
Result<HostPort> parse_host_port(std::string_view text, std::uint16_t default_port);
// "host:port", with brackets around an IPv6 address.
std::string format_host_port(const HostPort& address);

// One address of a socket.
struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t byte_count = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  // True for an address of this machine: 127.0.0.0/8, ::1, 127.0.0.0/8 mapped into IPv6, and local
  // sockets.
  bool is_loopback() const;
  std::string to_string() const;  // "127.0.0.1:4790", "[::1]:4790".
};

// Returns all addresses of `address`. Numeric addresses need no resolver. May block as long as the
// system's resolver does. kUnavailable: unknown name.
Result<std::vector<SocketAddress>> resolve(const HostPort& address, bool to_listen);

// Returns the address of a local socket in the abstract namespace (unix(7)). It has no file, and
// belongs to one network namespace. kInvalidArgument: the name is empty, or longer than
// kLocalNameMax.
Result<SocketAddress> local_name(std::string_view name);
inline constexpr std::size_t kLocalNameMax = 100;

// The near or far address of a connected or bound socket.
Result<SocketAddress> local_address(int fd);
Result<SocketAddress> peer_address(int fd);

}  // namespace gpurun::transport::sockets
