// Peer source: the part of a peer's address by which bounds for strangers count connections.
#pragma once

#include <string>

#include "transport/sockets/address.h"

namespace gpurun::server {

// The source of a connected socket, in bytes, not text. "4" and the IPv4 address, also for one
// mapped into IPv6. "6" and the first 64 bits of the IPv6 address, because one subscriber has all
// addresses behind them. "u" and the user at the other end of a local socket. All other sockets
// share one source.
std::string source_of(int fd);
// The part that an IP address decides. Empty for other addresses.
std::string source_of(const transport::sockets::SocketAddress& peer);

}  // namespace gpurun::server
