// Connection broker: gpurun opens connections to the session's server for processes that cannot
// reach the server themselves, because they are in a container with a network of its own.
//
// A process connects to gpurun's socket, a file that is mounted into the container, and sends which
// kind of connection it wants. gpurun connects to the session's own server, never to another one,
// and passes the connected socket (unix(7), SCM_RIGHTS). The process uses it as if it had connected
// itself: it proves its ticket, and shakes hands if the session is encrypted. gpurun sees none of
// its bytes. When gpurun ends, the lease ends, so there is nothing to broker afterwards.
//
// One request and one reply, each a message of a SOCK_SEQPACKET socket.
//   request  BrokerRequest
//   reply    1 byte: 1 with the socket attached, or 0 and the reason as text
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/deadline.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "transport/transport.h"

namespace gpurun::client {

enum class BrokerKind : std::uint32_t {
  kLocal = 1,  // The server's local socket, over which memory can be shared.
  kTcp = 2,
};
// Both ends are on one machine, so numbers have its byte order.
struct BrokerRequest {
  BrokerKind kind;
  std::uint32_t within_ms;  // gpurun does not try for longer.
};
static_assert(sizeof(BrokerRequest) == 8);
inline constexpr std::size_t kBrokerReplyBytesMax = 512;
// sockaddr_un::sun_path has 108 bytes, the last of which is 0 (unix(7)).
inline constexpr std::size_t kSocketPathBytesMax = 107;

// Makes the socket file `name`, mode 0600, in the open folder `folder`, and listens. The caller
// removes the file. `path` names it in messages.
Result<UniqueFd> listen_as_broker(int folder, const std::string& name, const std::string& path);

// Returns a connection that the broker at `path` has opened. Any thread. As for
// transport::connect(), options.keeper has the only descriptor at any time.
//   kUnavailable  The broker cannot reach the server, and the message has its reason.
//   kUnavailable  The keeper no longer wants the connection.
//   kPeerGone     No broker listens there.
//   kRefused      This user may not connect there.
//   kDeadline     No reply came within `deadline`.
//   kProtocol     The reply has neither a socket nor a reason.
Result<std::unique_ptr<transport::Connection>> connect_by_broker(const std::string& path,
                                                                 BrokerKind kind, Deadline deadline,
                                                                 const transport::Options& options);

}  // namespace gpurun::client
