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
//   request  1 byte: the kind
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

enum class BrokerKind : std::uint8_t {
  kLocal = 1,  // The server's local socket, over which memory can be shared.
  kTcp = 2,
};
inline constexpr std::size_t kBrokerReplyBytesMax = 512;
// sockaddr_un::sun_path has 108 bytes, the last of which is 0 (unix(7)).
inline constexpr std::size_t kSocketPathBytesMax = 107;

// Makes the socket file at `path`, mode 0600, and listens. kInvalidArgument: the path is longer
// than kSocketPathBytesMax. The caller removes the file.
Result<UniqueFd> listen_as_broker(const std::string& path);

// Returns a connection that the broker at `path` has opened. Any thread.
//   kUnavailable      the server is out of the broker's reach: the message has its reason
//   kPeerGone         no broker listens there
//   kDeadline         no reply within `deadline`
//   kProtocol         the reply has neither a socket nor a reason
Result<std::unique_ptr<transport::Connection>> connect_by_broker(const std::string& path,
                                                                 BrokerKind kind, Deadline deadline,
                                                                 const transport::Options& options);

}  // namespace gpurun::client
