// Socket listener: listens on one TCP port, or at a local name.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "transport/sockets/address.h"
#include "transport/transport.h"

namespace gpurun::transport::sockets {

// Listens on the first of the host's addresses that can be bound.
// kUnavailable: the port is taken, or the address is not one of this machine's.
Result<std::unique_ptr<Listener>> listen(const HostPort& address);
// As above, but on one address.
Result<std::unique_ptr<Listener>> listen(const SocketAddress& address);

}  // namespace gpurun::transport::sockets
