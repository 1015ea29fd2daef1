// Node changes: a program gives a node with work in the client, or a copy, other parameters.
#pragma once

#include "server/handlers/graphs/wanted_node.h"

namespace gpurun::server {

// Changes the node in its graph, or in the executable that the request names. Returns a CUresult.
// If the driver refuses, the graph stays as it was.
int change_node(WantedNode& wanted);

}  // namespace gpurun::server
