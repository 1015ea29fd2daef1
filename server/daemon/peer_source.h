// The source of a connection: what bounds for strangers count by.
#pragma once

#include <string>

#include "transport/tcp/address.h"

namespace gpurun::server {

// Of a connected socket: "4" and the IPv4 address (also of one that is mapped into IPv6), "6" and
// the first 64 bits of the IPv6 address, of which one subscriber has all others, "u" and the user
// at the other end of a local socket. Bytes, not text. All that are none of these are one source.
std::string source_of(int fd);
// The part of it that an address of IP decides; empty for others.
std::string source_of(const transport::tcp::SocketAddress& peer);

}  // namespace gpurun::server
