// Driver nodes: the driver's objects for handles that a client names.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "driver_abi/cuda_abi.h"
#include "server/worker/execution/call.h"

namespace gpurun::server {

// The driver's object that a HandleTable knows by `value`.
template <typename T>
T driver_object(DriverValue value) {
  return reinterpret_cast<T>(static_cast<std::uintptr_t>(value));
}

// The live graph behind a client's handle. Returns a CUresult.
int find_graph(Call& call, std::uint64_t handle, CUgraph* graph);

// The live nodes behind `handles`, which has 8 bytes for each. The caller bounds their number.
// Returns a CUresult.
int find_nodes(Call& call, ByteView handles, std::vector<CUgraphNode>* nodes);

// The live node that the payload of a raw call consists of. Returns a CUresult.
int find_only_node(Call& call, CUgraphNode* node);

// Ends a call that adds the client's `node` to its `graph`. A client that does not wait for the
// result has the node already, so a failure poisons it. node 0: the payload names none.
CallOutcome end_addition(Call& call, std::uint64_t node, std::uint64_t graph, int result);

}  // namespace gpurun::server
