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
  transport::rdma::Agreement agreement;  // Of the first connection, the log's.
  std::vector<std::string> bulk_ports;   // Of the other connections that go over RDMA.
  // Why the first other connection does not go on over RDMA: each registers memory of its own.
  // Empty: all do, or the log's does not.
  std::string why_bulk_does_not;
  std::vector<transport::rdma::Rejected> rejected;  // Ports of this machine.
};

// `place`: of the descriptors that RDMA needs.
// Asks the worker on each of `connections`, all of TCP or TLS, behind its answer. One round trip.
//   kDeadline, kPeerGone, kProtocol  the session cannot go on.
Result<FabricAttach> go_over_fabric(std::vector<OpenedConnection>& connections,
                                    const transport::rdma::AllowedPorts& allowed,
                                    const transport::rdma::DescriptorPlace& place,
                                    Deadline deadline);

}  // namespace gpurun::client
