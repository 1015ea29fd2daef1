// connect() and listen(): an explicit switch over the URL schemes.
#include <string>

#include "transport/sockets/connection.h"
#include "transport/sockets/listener.h"
#include "transport/transport.h"

namespace gpurun::transport {
namespace {

constexpr std::string_view kTcp = "tcp://", kLocal = "unix:";

bool has_scheme(std::string_view url, std::string_view scheme) {
  return url.substr(0, scheme.size()) == scheme;
}

Status unknown_scheme(std::string_view url) {
  return Status(Code::kInvalidArgument, "'" + std::string(url) +
                                            "': no such transport; there are tcp://HOST:PORT and "
                                            "unix:NAME");
}

// Port 0 is the default: the URL must name a port, or (to listen) lets the system choose one.
Result<sockets::HostPort> tcp_address(std::string_view url) {
  return sockets::parse_host_port(url.substr(kTcp.size()), 0);
}

Result<sockets::SocketAddress> local_address(std::string_view url) {
  return sockets::local_name(url.substr(kLocal.size()));
}

}  // namespace

Result<std::unique_ptr<Connection>> connect(std::string_view url, Deadline deadline,
                                            const Options& options) {
  if (has_scheme(url, kLocal)) {
    const Result<sockets::SocketAddress> address = local_address(url);
    if (!address.ok()) return address.status();
    return sockets::connect(*address, deadline, options);
  }
  if (!has_scheme(url, kTcp)) return unknown_scheme(url);
  Result<sockets::HostPort> address = tcp_address(url);
  if (!address.ok()) return address.status();
  return sockets::connect(*address, deadline, options);
}

Result<std::unique_ptr<Listener>> listen(std::string_view url) {
  if (has_scheme(url, kLocal)) {
    const Result<sockets::SocketAddress> address = local_address(url);
    if (!address.ok()) return address.status();
    return sockets::listen(*address);
  }
  if (!has_scheme(url, kTcp)) return unknown_scheme(url);
  Result<sockets::HostPort> address = tcp_address(url);
  if (!address.ok()) return address.status();
  return sockets::listen(*address);
}

}  // namespace gpurun::transport
