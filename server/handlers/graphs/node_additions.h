// Node additions: nodes with work in the client, and copies as nodes, that a program adds to a
// graph or captures. Call them on the thread that runs the call. All return a CUresult.
#pragma once

#include "server/handlers/graphs/wanted_node.h"

namespace gpurun::server {

// Adds the nodes to the request's graph, or none of them.
int add_node(WantedNode& wanted);
// Captures them on the call's stream.
int capture_node(WantedNode& wanted);

}  // namespace gpurun::server
