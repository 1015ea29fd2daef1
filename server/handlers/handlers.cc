// Handlers: the table of handlers. Each area of the API adds its handlers in a file of its own.
#include "server/handlers/handlers.h"

#include <algorithm>
#include <utility>

#include "protocol/calls/call.h"
#include "server/driver/direct_memory.h"
#include "server/driver/snapshot.h"
#include "server/handlers/contexts.h"
#include "server/handlers/graphs/graph_calls.h"
#include "server/handlers/graphs/graph_hosts.h"
#include "server/handlers/graphs/graph_topology.h"
#include "server/handlers/host_gates.h"
#include "server/handlers/interprocess/interprocess.h"
#include "server/handlers/interprocess/shareable_handles.h"
#include "server/handlers/memory/device_windows.h"
#include "server/handlers/memory/host_arena.h"
#include "server/handlers/memory/managed_variables.h"
#include "server/handlers/memory/memory_pool.h"
#include "server/handlers/memory/textures.h"
#include "server/handlers/modules/links.h"
#include "server/handlers/modules/module_state.h"
#include "server/handlers/modules/modules.h"
#include "server/handlers/worker_statistics.h"
#include "server/worker/execution/synchronize.h"

namespace gpurun::server {
namespace {

void say_not_run(Call& call, int result) {
  refuse_host_gate(call, result);
  refuse_graph_node(call, result);
  Dispatch::refuse(call, result);
}

CallOutcome run_generic(Call& call) { return HandlerState::of(call).dispatch().run(call); }

// cuInit: the driver was initialized before the client came. The reply is the snapshot.
CallOutcome run_init(Call& call) {
  call.set_reply(HandlerState::of(call).snapshot());
  return CallOutcome::done(0);
}

// cuStreamDestroy(CUstream): the row's ordinary record. The executor identifies the stream by the
// header and forgets it (ContextStreams), so the argument must be the same stream.
CallOutcome run_stream_destroy(Call& call) {
  const driver_abi::Row* row = driver_abi::find_row(call.header().opcode);
  const protocol::RecordHeader& header = call.header();
  protocol::UnpackedCall unpacked;
  if (row == nullptr || !unpacked.unpack(*row, call.payload()).ok() ||
      header.order != protocol::Order::kStream || header.stream <= protocol::kStreamPerThread ||
      unpacked.word(0) != header.stream) {
    return CallOutcome::done(kErrorInvalidValue);
  }
  return run_generic(call);
}

// Its variables leave the mirror before the driver ends them.
CallOutcome run_library_unload(Call& call) {
  const driver_abi::Row* row = driver_abi::find_row(call.header().opcode);
  protocol::UnpackedCall unpacked;
  if (row == nullptr || !unpacked.unpack(*row, call.payload()).ok()) {
    return CallOutcome::done(kErrorInvalidValue);
  }
  const auto ending = HandlerState::of(call).managed_variables().end_library(unpacked.word(0));
  return run_unload(call);
}

HandlerState::Objects make_objects(const CudaDriver& driver) {
  HandlerState::Objects objects;
  objects.modules = std::make_shared<ModuleState>();
  objects.links = std::make_shared<LinkRegistry>(driver);
  objects.gates = std::make_shared<HostGates>();
  objects.host_arena = std::make_shared<HostArena>(driver);
  objects.managed_variables = std::make_shared<ManagedVariables>(driver, *objects.host_arena);
  objects.graph_hosts = std::make_shared<GraphHosts>();
  objects.graph_topology = std::make_shared<GraphTopology>(driver);
  objects.interprocess = std::make_shared<Interprocess>(driver);
  objects.shareable_handles = std::make_shared<ShareableHandles>(driver);
  objects.textures = std::make_shared<TextureRegistry>();
  objects.direct_memory = std::make_shared<DirectMemory>(driver);
  int devices = 0;
  (void)GPURUN_DRIVER(driver, cuDeviceGetCount, &devices);
  for (int device = 0; device < std::min(devices, kHandlerDevicesMax); ++device) {
    objects.windows.push_back(
        std::make_shared<DeviceWindow>(driver, device, objects.direct_memory.get()));
  }
  return objects;
}

}  // namespace

Result<std::unique_ptr<HandlerState>> make_handler_state(const CudaDriver& driver) {
  Result<std::unique_ptr<Dispatch>> dispatch = Dispatch::create(driver);
  if (!dispatch) return dispatch.status();
  for (const driver_abi::Row& row : driver_abi::rows()) {
    void* function = GraphTopology::substitute(row.opcode);
    if (function == nullptr) function = Interprocess::substitute(row.opcode);
    if (function == nullptr) function = ShareableHandles::substitute(row.opcode);
    if (function != nullptr) (*dispatch)->substitute(row.opcode, function);
  }
  Result<Bytes> snapshot = take_snapshot(driver);
  if (!snapshot) return snapshot.status();
  return std::make_unique<HandlerState>(driver, std::move(*dispatch), std::move(*snapshot),
                                        make_objects(driver));
}

Handlers make_handlers() {
  Handlers handlers;
  handlers.generic = &run_generic;
  handlers.not_run = &say_not_run;
  set_handler(handlers, "cuInit", &run_init);
  set_handler(handlers, "cuStreamDestroy_v2", &run_stream_destroy);
  add_context_handlers(handlers);
  add_module_load_handlers(handlers);
  add_module_name_handlers(handlers);
  add_link_handlers(handlers);
  add_launch_handlers(handlers);
  add_attribute_handlers(handlers);
  add_graph_node_handlers(handlers);
  add_graph_host_handlers(handlers);
  add_graph_memory_handlers(handlers);
  add_conditional_node_handlers(handlers);
  add_batch_node_handlers(handlers);
  add_moved_graph_handlers(handlers);
  add_graph_params_handlers(handlers);
  add_instantiation_handlers(handlers);
  add_user_object_handlers(handlers);
  add_capture_handlers(handlers);
  add_host_function_handlers(handlers);
  add_synchronize_handlers(handlers);
  add_memory_pool_handlers(handlers);
  add_device_window_handlers(handlers);
  add_host_arena_handlers(handlers);
  set_handler(handlers, "cuLibraryGetManaged", &run_managed_variable);
  set_handler(handlers, "cuLibraryUnload", &run_library_unload);
  add_interprocess_handlers(handlers);
  add_shareable_handle_handlers(handlers);
  add_texture_handlers(handlers);
  add_statistics_handler(handlers);
  return handlers;
}

}  // namespace gpurun::server
