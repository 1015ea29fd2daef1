// Graph params: the parameters of nodes, read back from the driver. Its handles become the
// client's. A side of a copy that is the worker's memory becomes the operation that has the
// client's (protocol/calls/graph_host.h).
#include <cstring>
#include <optional>
#include <vector>

#include "protocol/calls/graph_host.h"
#include "protocol/calls/graph_parameters.h"
#include "protocol/calls/module_calls.h"
#include "server/handlers/graphs/graph_calls.h"
#include "server/handlers/graphs/graph_hosts.h"
#include "server/handlers/graphs/graph_topology.h"
#include "server/handlers/graphs/wanted_node.h"
#include "server/handlers/modules/kernel_facts.h"
#include "server/handlers/state/handler_state.h"
#include "server/worker/execution/host_memory.h"

namespace gpurun::server {
namespace {

using protocol::GraphCopyReply;
using protocol::GraphCopySide;
using protocol::GraphNodeFacts;
using protocol::KernelNode;

template <typename T>
std::uint64_t value_of(T* object) {
  return reinterpret_cast<std::uintptr_t>(object);
}

// The node of a question.
int find_node(Call& call, CUgraphNode* node) {
  std::uint64_t handle = 0;
  if (call.header().form != protocol::Form::kRaw || call.payload().size() != sizeof handle) {
    return kErrorInvalidValue;
  }
  std::memcpy(&handle, call.payload().data(), sizeof handle);
  const HandleTable::Found found = call.handles().find(handle, HandleKind::kGraphNode);
  if (found.result == 0) *node = driver_object<CUgraphNode>(found.value);
  return found.result;
}

// The client knows a kernel by its function, or as a library's kernel.
int name_kernel(Call& call, const CUDA_KERNEL_NODE_PARAMS& read, DriverKernel* kernel,
                std::uint64_t* name) {
  *kernel = {HandleKind::kFunction, read.func};
  *name = read.func == nullptr
              ? 0
              : call.handles().client_handle_of(value_of(read.func), HandleKind::kFunction);
  if (*name != 0) return 0;
  *kernel = {HandleKind::kKernel, read.kern};
  if (read.kern != nullptr) {
    *name = call.handles().client_handle_of(value_of(read.kern), HandleKind::kKernel);
  }
  return *name == 0 ? kErrorNotSupported : 0;
}

// cuda.h, CU_LAUNCH_PARAM_*: pairs of a name and a value, in any order, to the name 0.
bool read_packed(void* const* extra, Bytes* block) {
  const void* buffer = nullptr;
  const std::size_t* bytes = nullptr;
  for (std::size_t i = 0; i < 4 && extra[i] != nullptr; i += 2) {
    const auto name = reinterpret_cast<std::uintptr_t>(extra[i]);
    if (name == 1) buffer = extra[i + 1];
    if (name == 2) bytes = static_cast<const std::size_t*>(extra[i + 1]);
  }
  if (buffer == nullptr || bytes == nullptr || *bytes > limits::kKernelParameterBytesMax) {
    return false;
  }
  const auto* const from = static_cast<const std::byte*>(buffer);
  block->assign(from, from + *bytes);
  return true;
}

// "The params will contain either kernelParams or extra" (manual, cuGraphKernelNodeGetParams).
int read_block(const CudaDriver& driver, const DriverKernel& kernel,
               const CUDA_KERNEL_NODE_PARAMS& read, Bytes* block) {
  if (read.extra != nullptr) return read_packed(read.extra, block) ? 0 : kErrorNotSupported;
  if (read.kernelParams == nullptr) return 0;
  std::vector<protocol::KernelParameter> parameters;
  if (!parameters_of(driver, kernel, &parameters)) return kErrorNotSupported;
  block->resize(protocol::parameter_block_bytes(parameters));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    std::memcpy(block->data() + parameters[i].offset, read.kernelParams[i], parameters[i].bytes);
  }
  return 0;
}

int read_kernel(Call& call, KernelNode* node) {
  const CudaDriver& driver = HandlerState::of(call).driver();
  CUgraphNode of_driver = nullptr;
  if (const int result = find_node(call, &of_driver); result != 0) return result;
  CUDA_KERNEL_NODE_PARAMS read{};
  int result = GPURUN_DRIVER(driver, cuGraphKernelNodeGetParams_v2, of_driver, &read);
  DriverKernel kernel{};
  if (result == 0) result = name_kernel(call, read, &kernel, &node->launch.function);
  if (result == 0) result = read_block(driver, kernel, read, &node->block);
  if (result != 0) return result;
  node->launch.grid[0] = read.gridDimX;
  node->launch.grid[1] = read.gridDimY;
  node->launch.grid[2] = read.gridDimZ;
  node->launch.block[0] = read.blockDimX;
  node->launch.block[1] = read.blockDimY;
  node->launch.block[2] = read.blockDimZ;
  node->launch.shared_bytes = read.sharedMemBytes;
  node->launch.parameter_bytes = static_cast<std::uint32_t>(node->block.size());
  if (read.ctx != nullptr) {
    node->context = call.handles().client_handle_of(value_of(read.ctx), HandleKind::kContext);
  }
  return 0;
}

CallOutcome run_kernel(Call& call) {
  KernelNode node;
  const int result = read_kernel(call, &node);
  if (result == 0) call.set_reply(protocol::pack(node));
  return CallOutcome::done(result);
}

// The operation behind a host node of the driver. 0: it is not ours.
int read_operation(const CudaDriver& driver, CUgraphNode node, std::uint64_t* number) {
  CUDA_HOST_NODE_PARAMS read{};
  const int result = GPURUN_DRIVER(driver, cuGraphHostNodeGetParams, node, &read);
  if (result != 0) return result;
  if (read.fn != &GraphHosts::run) return kErrorNotSupported;
  *number = static_cast<const GraphHosts::Operation*>(read.userData)->number;
  return 0;
}

CallOutcome run_host(Call& call) {
  HandlerState& state = HandlerState::of(call);
  CUgraphNode node = nullptr;
  int result = find_node(call, &node);
  if (result != 0) return CallOutcome::done(result);
  const auto own = state.graph_topology().find(node);
  // For the program, a node with work in the client that copies is a copy.
  if (own.has_value() && own->copies) return CallOutcome::done(kErrorInvalidValue);
  std::uint64_t number = 0;
  result = read_operation(state.driver(), node, &number);
  if (result == 0) call.set_reply(bytes_of(number));
  return CallOutcome::done(result);
}

// One side of a copy as the driver has it.
struct DriverSide {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  CUarray array;
  std::size_t pitch, height, x, y, z;
};

// `at_client`: the side is the client's memory, and the worker's stands for it. NOT_SUPPORTED: the
// worker's memory, of which the client knows nothing.
int read_side(Call& call, const DriverSide& side, bool at_client, GraphCopySide* read,
              std::uint8_t* is_host) {
  if (at_client) return 0;
  if (side.type == CU_MEMORYTYPE_ARRAY) {
    read->array = call.handles().client_handle_of(value_of(side.array), HandleKind::kArray);
    read->x = side.x;
    read->y = side.y;
    read->z = side.z;
    return read->array == 0 ? kErrorNotSupported : 0;
  }
  const bool host = side.type == CU_MEMORYTYPE_HOST;
  read->line_pitch = side.pitch;
  read->slice_pitch = side.pitch * side.height;
  read->address = (host ? reinterpret_cast<std::uintptr_t>(side.host) : side.device) + side.x +
                  side.y * read->line_pitch + side.z * read->slice_pitch;
  const HostMemory* const memory = call.host_memory();
  const bool reached = memory != nullptr && memory->covers(read->address, 1);
  *is_host = host || reached ? 1 : 0;
  return host && !reached ? kErrorNotSupported : 0;
}

int read_copy(Call& call, GraphCopyReply* reply) {
  HandlerState& state = HandlerState::of(call);
  CUgraphNode node = nullptr;
  int result = find_node(call, &node);
  if (result != 0) return result;
  const auto own = state.graph_topology().find(node);
  if (own.has_value() && !own->copies) return kErrorInvalidValue;
  if (own.has_value()) result = read_operation(state.driver(), own->host(), &reply->operation);
  if (result != 0) return result;
  // A copy within the client's memory has no copy node.
  if (own.has_value() && own->work == protocol::GraphWork::kFunction) return 0;
  CUDA_MEMCPY3D read{};
  result = GPURUN_DRIVER(state.driver(), cuGraphMemcpyNodeGetParams,
                         own.has_value() ? own->copy() : node, &read);
  if (result != 0) return result;
  reply->width = read.WidthInBytes;
  reply->lines = read.Height;
  reply->slices = read.Depth;
  const bool in = own.has_value() && own->work == protocol::GraphWork::kCopyIn;
  const bool out = own.has_value() && own->work == protocol::GraphWork::kCopyOut;
  result = read_side(call,
                     {read.srcMemoryType, read.srcHost, read.srcDevice, read.srcArray,
                      read.srcPitch, read.srcHeight, read.srcXInBytes, read.srcY, read.srcZ},
                     in, &reply->source, &reply->source_is_host);
  if (result != 0) return result;
  return read_side(call,
                   {read.dstMemoryType, read.dstHost, read.dstDevice, read.dstArray, read.dstPitch,
                    read.dstHeight, read.dstXInBytes, read.dstY, read.dstZ},
                   out, &reply->destination, &reply->destination_is_host);
}

CallOutcome run_copy(Call& call) {
  GraphCopyReply reply;
  const int result = read_copy(call, &reply);
  if (result == 0) call.set_reply(bytes_of(reply));
  return CallOutcome::done(result);
}

std::uint64_t name_context(Call& call, CUcontext context) {
  return context == nullptr
             ? 0
             : call.handles().client_handle_of(value_of(context), HandleKind::kContext);
}

int name_bodies(Call& call, const CUDA_CONDITIONAL_NODE_PARAMS& read, GraphNodeFacts* facts,
                std::vector<std::uint64_t>* bodies) {
  facts->conditional = read.handle;
  facts->conditional_type = static_cast<std::uint32_t>(read.type);
  facts->context = name_context(call, read.ctx);
  if (read.phGraph_out == nullptr || read.size > limits::kArrayCountMax) return kErrorNotSupported;
  for (unsigned i = 0; i < read.size; ++i) {
    const std::uint64_t body =
        call.handles().client_handle_of(value_of(read.phGraph_out[i]), HandleKind::kGraph);
    if (body == 0) return kErrorNotSupported;
    bodies->push_back(body);
  }
  facts->body_count = read.size;
  return 0;
}

// Other facts are the answers of the functions of the types.
int read_facts(Call& call, GraphNodeFacts* facts, std::vector<std::uint64_t>* bodies) {
  HandlerState& state = HandlerState::of(call);
  CUgraphNode node = nullptr;
  int result = find_node(call, &node);
  if (result != 0) return result;
  if (const auto own = state.graph_topology().find(node); own.has_value()) {
    facts->type = own->copies ? CU_GRAPH_NODE_TYPE_MEMCPY : CU_GRAPH_NODE_TYPE_HOST;
    if (own->copies) facts->context = name_context(call, own->context);
    return 0;
  }
  CUgraphNodeParams read{};
  result = GPURUN_DRIVER(state.driver(), cuGraphNodeGetParams, node, &read);
  if (result != 0) return result;
  facts->type = static_cast<std::uint32_t>(read.type);
  if (read.type == CU_GRAPH_NODE_TYPE_MEMCPY) {
    facts->context = name_context(call, read.memcpy.copyCtx);
  } else if (read.type == CU_GRAPH_NODE_TYPE_MEMSET) {
    facts->context = name_context(call, read.memset.ctx);
  } else if (read.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
    return name_bodies(call, read.conditional, facts, bodies);
  }
  return 0;
}

CallOutcome run_facts(Call& call) {
  GraphNodeFacts facts;
  std::vector<std::uint64_t> bodies;
  const int result = read_facts(call, &facts, &bodies);
  if (result != 0) return CallOutcome::done(result);
  Bytes whole(sizeof facts + bodies.size() * sizeof bodies[0]);
  std::memcpy(whole.data(), &facts, sizeof facts);
  if (!bodies.empty()) {
    std::memcpy(whole.data() + sizeof facts, bodies.data(), bodies.size() * sizeof bodies[0]);
  }
  call.set_reply(whole);
  return CallOutcome::done(0);
}

}  // namespace

// The client writes the program's file (client/interpose/entry/graph_dot_entry.cc). The driver
// would write one of this machine, at a path of the client's choice.
CallOutcome refuse_dot_file(Call&) { return CallOutcome::done(kErrorNotSupported); }

void add_graph_params_handlers(Handlers& handlers) {
  set_handler(handlers, "cuGraphDebugDotPrint", &refuse_dot_file);
  set_handler(handlers, "cuGraphKernelNodeGetParams_v2", &run_kernel);
  set_handler(handlers, "cuGraphNodeGetParams", &run_facts);
  set_handler(handlers, "cuGraphHostNodeGetParams", &run_host);
  set_handler(handlers, "cuGraphMemcpyNodeGetParams", &run_copy);
}

}  // namespace gpurun::server
