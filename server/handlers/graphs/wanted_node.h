// WantedNode: a request for a node with work in the client, or for a copy as a node, with what it
// needs of the driver (protocol/calls/graph_host.h).
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "protocol/calls/graph_host.h"
#include "server/handlers/graphs/driver_nodes.h"
#include "server/handlers/graphs/graph_calls.h"
#include "server/handlers/graphs/graph_hosts.h"
#include "server/handlers/graphs/graph_topology.h"
#include "server/handlers/state/handler_state.h"

namespace gpurun::server {

struct WantedNode {
  // `of` outlives this object.
  explicit WantedNode(Call& of)
      : call(of),
        driver(HandlerState::of(of).driver()),
        hosts(HandlerState::of(of).graph_hosts()),
        topology(HandlerState::of(of).graph_topology()) {}

  bool is_copy() const { return node.work != protocol::GraphWork::kFunction; }
  bool has_operation() const { return node.work != protocol::GraphWork::kCopyDevice; }
  std::uint64_t bytes() const { return is_copy() ? node.width * node.lines * node.slices : 0; }

  // Reads the payload. Returns a CUresult.
  int read();
  // From here on GraphHosts notifies the client of its end.
  int make_operation(std::shared_ptr<GraphHosts::Shadow> shadow = nullptr) {
    begun = true;
    if (!has_operation()) return 0;
    return hosts.make(node.operation, node.work, bytes(), call.driver_context(), std::move(shadow),
                      &operation);
  }
  CUDA_HOST_NODE_PARAMS host() const { return {&GraphHosts::run, operation.get()}; }
  // Its copy in the driver's form. Needs make_operation() first if the client has a part in it.
  CUDA_MEMCPY3D copy() const;
  // Whether host memory of the client that the device reaches holds all of the side.
  bool is_host(const protocol::GraphCopySide& side) const;
  // The stream of a captured call.
  CUstream stream() const { return static_cast<CUstream>(call.driver_stream()); }

  Call& call;
  const CudaDriver& driver;
  GraphHosts& hosts;
  GraphTopology& topology;
  protocol::GraphNodePayload node;
  CUarray source_array = nullptr;
  CUarray destination_array = nullptr;
  std::vector<CUgraphNode> dependencies;
  GraphHosts::OperationPtr operation;
  bool begun = false;
};

}  // namespace gpurun::server
