// Connection whose bytes pass through two rings of shared memory.
//
// It stands on a local socket, as TLS stands on another connection. Both ends talk over that at
// first; once they share memory, it carries nothing but single bytes that wake a reader who has
// said that it sleeps, and the end: a process that dies closes it. So neither end polls, and there
// is one descriptor for a connection, as with TCP.
//
// A reader that looks again and again (receive_some()) and a writer whose reader is awake make no
// system call. A writer that finds the ring full sleeps at a futex in it until half of the ring is
// free, and looks every kSlice whether the other end has died.
#pragma once

#include <memory>

#include "transport/shm/memory.h"
#include "transport/transport.h"

namespace gpurun::transport::shm {

enum class Side : std::uint8_t { kOffered, kTook };

// From now on both ends' bytes pass through `memory`; where there is none, the socket itself.
// Nothing may be left unread on `socket`, of what was meant for it. kInvalidArgument: `socket` is
// none of listen() or connect() at "unix:NAME", or of TcpConnection::adopt().
Result<std::unique_ptr<Connection>> share(std::unique_ptr<Connection> socket, SharedMemory memory,
                                          Side side);

// take_offer() and share(), of a local socket; another connection stays as it is. When the offer
// cannot be taken the socket is still there, and the other end listens at it for an answer: so it
// does afterwards, for who has kept a pointer to it.
Status share_offered(std::unique_ptr<Connection>& connection, Deadline deadline);

}  // namespace gpurun::transport::shm
