// FabricAttach: the step of an attach in which the connections of a session go on over RDMA.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "client/attach/attach_connection.h"
#include "transport/rdma/allowed_ports.h"
#include "transport/transport.h"

namespace gpurun::client {

// Asks the worker on each of `connections`, all of TCP or TLS, behind its answer. Returns why
// the first one stays as it is, or an empty text. The others may differ: each has its own devices'
// memory. One round trip.
//   kDeadline, kPeerGone, kProtocol  the session cannot go on.
Result<std::string> go_over_fabric(std::vector<OpenedConnection>& connections,
                                   const transport::rdma::AllowedPorts& allowed, int fd_min,
                                   Deadline deadline);

}  // namespace gpurun::client
