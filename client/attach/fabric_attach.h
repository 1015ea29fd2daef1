// FabricAttach: the step of an attach in which the connections of a session go on over RDMA.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "client/attach/attach_connection.h"
#include "transport/rdma/allowed_ports.h"
#include "transport/rdma/exchange.h"
#include "transport/transport.h"

namespace gpurun::client {

struct FabricAttach {
  transport::rdma::Agreement agreement;             // Of the first connection.
  std::vector<transport::rdma::Rejected> rejected;  // Ports of this machine.
};

// Asks the worker on each of `connections`, all of TCP or TLS, behind its answer. Returns the
// result of the first one. The others may differ: each has its own devices' memory. One round
// trip.
//   kDeadline, kPeerGone, kProtocol  the session cannot go on.
Result<FabricAttach> go_over_fabric(std::vector<OpenedConnection>& connections,
                                    const transport::rdma::AllowedPorts& allowed, int fd_min,
                                    Deadline deadline);

}  // namespace gpurun::client
