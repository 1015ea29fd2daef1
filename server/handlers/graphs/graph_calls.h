// Graph calls: handlers of the nodes of graphs and of captures.
#pragma once

#include "server/worker/execution/call.h"

namespace gpurun::server {

// Nodes with work in the client, and copies as nodes: graph_host_nodes.cc.
void add_graph_host_handlers(Handlers& handlers);
// The call was not run, so its node and the operation of that will never exist.
void refuse_graph_node(Call& call, int result);
// Nodes that allocate memory: graph_memory.cc.
void add_graph_memory_handlers(Handlers& handlers);
// The same for cuUserObjectCreate.
void refuse_user_object(Call& call, int result);
// Objects of the program that graphs keep: user_objects.cc.
void add_user_object_handlers(Handlers& handlers);
// Kernel nodes: graph_nodes.cc.
void add_graph_node_handlers(Handlers& handlers);
// Conditional nodes: conditional_nodes.cc.
void add_conditional_node_handlers(Handlers& handlers);
// Memory operations as nodes: batch_nodes.cc.
void add_batch_node_handlers(Handlers& handlers);
// Child graphs that move into their node: moved_graphs.cc.
void add_moved_graph_handlers(Handlers& handlers);
// Instantiation by parameters, and updates: instantiations.cc.
void add_instantiation_handlers(Handlers& handlers);
// The parameters of nodes, read back: graph_params.cc.
void add_graph_params_handlers(Handlers& handlers);
// Queries and ends of captures: captures.cc.
void add_capture_handlers(Handlers& handlers);

}  // namespace gpurun::server
