// go_over_fabric(): all offers first, and then all answers.
#include "client/attach/fabric_attach.h"

#include <utility>

#include "base/numa_nodes.h"
#include "transport/rdma/exchange.h"

namespace gpurun::client {

Result<FabricAttach> go_over_fabric(std::vector<OpenedConnection>& connections,
                                    const transport::rdma::AllowedPorts& allowed,
                                    const transport::rdma::DescriptorPlace& place,
                                    Deadline deadline) {
  namespace rdma = transport::rdma;
  FabricAttach result;
  rdma::NearTo near;
  near.node = node_of_this_thread(near.files);
  const Result<rdma::Gid> local = rdma::address_of(connections.front().connection->fd());
  const Result<std::unique_ptr<rdma::Fabric>> fabric =
      rdma::open_fabric(allowed, &result.rejected, near, local.ok() ? &*local : nullptr, place);
  rdma::Side side;
  side.fabric = fabric.ok() ? fabric->get() : nullptr;
  side.why_none = fabric.status().message();
  side.place.count = static_cast<unsigned>(connections.size());
  std::vector<rdma::Asked> asked;
  for (const OpenedConnection& each : connections) {
    side.place.index = static_cast<unsigned>(asked.size());
    Result<rdma::Asked> one = rdma::ask(*each.connection, side, deadline);
    if (!one.ok()) return one.status();
    asked.push_back(*std::move(one));
  }
  for (std::size_t i = 0; i < connections.size(); ++i) {
    OpenedConnection& one = connections[i];
    Result<rdma::Agreement> agreement =
        rdma::enter(one.connection, one.below, std::move(asked[i]), deadline);
    if (!agreement.ok()) return agreement.status();
    if (i == 0) {
      result.agreement = *std::move(agreement);
    } else if (agreement->why_none.empty()) {
      result.bulk_ports.push_back(std::move(agreement->ports));
    } else if (result.agreement.why_none.empty() && result.why_bulk_does_not.empty()) {
      result.why_bulk_does_not = std::move(agreement->why_none);
    }
  }
  return result;
}

}  // namespace gpurun::client
