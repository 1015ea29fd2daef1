// Moved graph: a child graph that belongs to its parent's node from now on (cuda.h,
// CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE). The program keeps the handles of the graph and of its
// nodes, which end with the node.
#pragma once

#include <cstddef>

#include "client/interpose/call/forward.h"

namespace gpurun::client::interpose {

// As cuGraphAddNode_v2. `edges` (optional) has `count` elements. Waits for the worker's driver,
// which alone knows whether the graph may move. Returns a CUresult.
int add_moved_graph(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                    const CUgraphEdgeData* edges, std::size_t count, CUgraph child);

}  // namespace gpurun::client::interpose
