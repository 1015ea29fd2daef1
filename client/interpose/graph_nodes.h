// Graph nodes: which graph the client added a node to. A call that adds a node is posted, so the
// client itself refuses dependencies that no driver takes. Nodes that the client got from the
// worker (cuGraphGetNodes, a capture, a clone) have no known graph, and a call that names one is
// awaited.
#pragma once

#include <span>

#include "client/interpose/argument_rules.h"
#include "client/interpose/forward.h"

namespace gpurun::client::interpose {

// A new node of `graph`, in `context` (0: none). 0: out of handles.
Handle mint_node(HandleTable& handles, Handle graph, Handle context);

// The dependencies of a new node of `graph`: live nodes of it, each once (CUDA Driver API manual,
// cuGraphAddKernelNode: "dependencies may not have any duplicate entries"). Any thread.
Sound check_dependencies(const HandleTable& handles, Handle graph,
                         std::span<const Handle> dependencies);

}  // namespace gpurun::client::interpose
