// Connection in shared memory: its bytes pass through two rings that both processes map.
//
// It is built on a local socket, as TLS is built on another connection. At first both ends send
// their bytes over that socket. Once they share memory, the rings are the connection's carrier
// (transport/carrier/connection.h), and one descriptor serves a connection, as with TCP. A sender
// that finds its ring full sleeps at a futex in the ring until half of the ring is free.
#pragma once

#include <memory>

#include "transport/carrier/connection.h"
#include "transport/shm/memory.h"
#include "transport/shm/ring_carrier.h"
#include "transport/transport.h"

namespace gpurun::transport::shm {

// Returns a connection through `memory`, or `socket` itself when `memory` is empty. All bytes that
// were meant for `socket` itself must have been received before. kInvalidArgument: `socket` does
// not come from listen() or connect() at "unix:NAME", nor from SocketConnection::adopt().
Result<std::unique_ptr<Connection>> share(std::unique_ptr<Connection> socket, SharedMemory memory,
                                          Side side, const carrier::CarrierOptions& options = {});

// Does take_offer() and share() on a local socket. Leaves another connection as it is. When the
// offer cannot be taken, `connection` is still the socket. In both cases the other end reads its
// answer from the socket itself, and a pointer to the socket stays valid within the shared
// connection.
// `file`: as for take_offer().
Status share_offered(std::unique_ptr<Connection>& connection, Deadline deadline,
                     UniqueFd* file = nullptr, const carrier::CarrierOptions& options = {});

}  // namespace gpurun::transport::shm
