// Graph nodes: the graph to which the client added each node. A call that adds a node is posted, so
// the client itself refuses dependencies that no driver accepts. Nodes that the worker returned
// (cuGraphGetNodes, a capture, a clone) have no known graph. A call that names such a node waits
// for its reply.
#pragma once

#include <span>

#include "client/interpose/call/forward.h"
#include "client/interpose/call/sound.h"

namespace gpurun::client::interpose {

// A new node of `graph` in `context`. `context` 0: none. Returns 0 when out of handles. It ends
// with its graph.
Handle mint_node(HandleTable& handles, Handle graph, Handle context);

// `member` ends with `owner`: a node with its graph, a graph inside a node with that node. Any
// thread.
void own_handle(const HandleTable& handles, Handle owner, Handle member);
// As own_handle(), for a node that the worker returned: from now on its graph is known.
void adopt_node(HandleTable& handles, Handle graph, Handle node);
// The program has moved `graph` into `node`, and it ends with that (cuda.h,
// CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE). The object of a moved graph's handle is its node.
void note_moved(HandleTable& handles, Handle graph, Handle node);
bool is_moved(const HandleTable& handles, Handle graph);
// Retires all handles that end with `owner`, at any depth.
void retire_owned(HandleTable& handles, Handle owner);

// Checks the dependencies of a new node of `graph`. They must be live nodes of that graph, each
// listed once (CUDA Driver API manual, cuGraphAddKernelNode: "dependencies may not have any
// duplicate entries"). Any thread.
Sound check_dependencies(const HandleTable& handles, Handle graph,
                         std::span<const Handle> dependencies);

// Graphs with conditional nodes cannot be cloned and cannot be children (manual, cuGraphClone).
// Whether the process has ever added one: the client does not know which graphs have some.
void note_conditional_node() noexcept;
bool conditional_nodes_exist() noexcept;

}  // namespace gpurun::client::interpose
