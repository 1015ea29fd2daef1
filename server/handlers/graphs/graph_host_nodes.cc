// Graph host nodes: nodes with work in the client, and copies as nodes. They are added, captured
// and changed here (protocol/calls/graph_host.h).
#include <spdlog/spdlog.h>

#include <cstring>
#include <vector>

#include "driver_abi/opcodes.h"
#include "protocol/calls/graph_host.h"
#include "server/handlers/graphs/graph_calls.h"
#include "server/handlers/graphs/graph_hosts.h"
#include "server/handlers/graphs/graph_topology.h"
#include "server/handlers/state/handler_state.h"
#include "server/worker/execution/host_memory.h"

namespace gpurun::server {
namespace {

namespace opcode = driver_abi::opcode;
using HostNode = GraphTopology::HostNode;
using protocol::GraphCopySide;
using protocol::GraphHostStep;
using protocol::GraphNodePayload;
using protocol::GraphTurnPayload;
using protocol::GraphWork;

template <typename T>
T as(DriverValue value) {
  return reinterpret_cast<T>(static_cast<std::uintptr_t>(value));
}

// The requested node, with what it needs of the driver.
struct Wanted {
  explicit Wanted(Call& of)
      : call(of),
        driver(HandlerState::of(of).driver()),
        hosts(HandlerState::of(of).graph_hosts()),
        topology(HandlerState::of(of).graph_topology()) {}

  bool is_copy() const { return node.work != GraphWork::kFunction; }
  bool has_operation() const { return node.work != GraphWork::kCopyDevice; }
  std::uint64_t bytes() const { return is_copy() ? node.width * node.lines * node.slices : 0; }

  int read();
  // From here on GraphHosts notifies the client of its end.
  int make_operation(std::shared_ptr<GraphHosts::Shadow> shadow = nullptr) {
    begun = true;
    if (!has_operation()) return 0;
    return hosts.make(node.operation, node.work, bytes(), call.driver_context(), std::move(shadow),
                      &operation);
  }
  CUDA_HOST_NODE_PARAMS host() const { return {&GraphHosts::run, operation.get()}; }
  CUDA_MEMCPY3D copy() const;

  Call& call;
  const CudaDriver& driver;
  GraphHosts& hosts;
  GraphTopology& topology;
  GraphNodePayload node;
  CUarray source_array = nullptr;
  CUarray destination_array = nullptr;
  std::vector<CUgraphNode> dependencies;
  GraphHosts::OperationPtr operation;
  bool begun = false;
};

int find_array(Call& call, const GraphCopySide& side, CUarray* array) {
  if (side.array == 0) return 0;
  const HandleTable::Found found = call.handles().find(side.array, HandleKind::kArray);
  if (found.result == 0) *array = as<CUarray>(found.value);
  return found.result;
}

int Wanted::read() {
  const ByteView payload = call.payload();
  if (payload.size() < sizeof node) return kErrorInvalidValue;
  std::memcpy(&node, payload.data(), sizeof node);
  const auto work = static_cast<std::uint32_t>(node.work);
  if (work < 1 || work > 4 || node.dependency_count > limits::kArrayCountMax ||
      payload.size() != sizeof node + node.dependency_count * sizeof(std::uint64_t) ||
      has_operation() != (node.operation != 0)) {
    return kErrorInvalidValue;
  }
  std::uint64_t total = 0;
  if (is_copy() && (__builtin_mul_overflow(node.width, node.lines, &total) ||
                    __builtin_mul_overflow(total, node.slices, &total) || total == 0)) {
    return kErrorInvalidValue;
  }
  int result = find_array(call, node.source, &source_array);
  if (result == 0) result = find_array(call, node.destination, &destination_array);
  if (result != 0) return result;
  for (std::size_t i = 0; i < node.dependency_count; ++i) {
    std::uint64_t handle = 0;
    std::memcpy(&handle, payload.data() + sizeof node + i * sizeof handle, sizeof handle);
    const HandleTable::Found found = call.handles().find(handle, HandleKind::kGraphNode);
    if (found.result != 0) return found.result;
    dependencies.push_back(as<CUgraphNode>(found.value));
  }
  return 0;
}

// One side of a copy in the driver's form.
struct DriverSide {
  CUmemorytype type = CU_MEMORYTYPE_DEVICE;
  void* host = nullptr;
  CUdeviceptr device = 0;
  std::size_t pitch = 0;
  std::size_t rows = 0;
  CUarray array = nullptr;
  std::size_t x = 0, y = 0, z = 0;
};

// Shadows have no gaps.
DriverSide shadow_side(const Wanted& wanted) {
  return {CU_MEMORYTYPE_HOST, wanted.operation->shadow->data(), 0, wanted.node.width,
          wanted.node.lines};
}

// Whether host memory of the client that the device reaches holds all of the side.
bool is_host(const Wanted& wanted, const GraphCopySide& side) {
  const HostMemory* const memory = wanted.call.host_memory();
  const GraphNodePayload& node = wanted.node;
  return memory != nullptr && side.array == 0 &&
         memory->covers(HostSide{side.address, node.width, node.lines, node.slices, side.line_pitch,
                                 side.slice_pitch});
}

DriverSide device_side(const Wanted& wanted, const GraphCopySide& side, CUarray array) {
  const GraphNodePayload& node = wanted.node;
  if (array != nullptr) {
    return {CU_MEMORYTYPE_ARRAY, nullptr, 0, 0, 0, array, side.x, side.y, side.z};
  }
  // The pitch of a single line or a single slice has no meaning.
  const bool lined = node.lines > 1 || node.slices > 1;
  const bool sliced = node.slices > 1 && side.line_pitch != 0;
  const bool host = is_host(wanted, side);
  return {host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
          host ? reinterpret_cast<void*>(side.address) : nullptr, side.address,
          lined ? side.line_pitch : node.width,
          sliced ? side.slice_pitch / side.line_pitch : node.lines};
}

CUDA_MEMCPY3D Wanted::copy() const {
  const DriverSide from = node.work == GraphWork::kCopyIn
                              ? shadow_side(*this)
                              : device_side(*this, node.source, source_array);
  const DriverSide to = node.work == GraphWork::kCopyOut
                            ? shadow_side(*this)
                            : device_side(*this, node.destination, destination_array);
  CUDA_MEMCPY3D made{};
  made.srcMemoryType = from.type;
  made.srcHost = from.host;
  made.srcDevice = from.device;
  made.srcPitch = from.pitch;
  made.srcHeight = from.rows;
  made.srcArray = from.array;
  made.srcXInBytes = from.x;
  made.srcY = from.y;
  made.srcZ = from.z;
  made.dstMemoryType = to.type;
  made.dstHost = to.host;
  made.dstDevice = to.device;
  made.dstPitch = to.pitch;
  made.dstHeight = to.rows;
  made.dstArray = to.array;
  made.dstXInBytes = to.x;
  made.dstY = to.y;
  made.dstZ = to.z;
  made.WidthInBytes = node.width;
  made.Height = node.lines;
  made.Depth = node.slices;
  return made;
}

// Adding

int add_host(Wanted& wanted, CUgraph graph, const std::vector<CUgraphNode>& behind,
             CUgraphNode* made) {
  const CUDA_HOST_NODE_PARAMS host = wanted.host();
  return GPURUN_DRIVER(wanted.driver, cuGraphAddHostNode, made, graph, behind.data(), behind.size(),
                       &host);
}

int add_copy(Wanted& wanted, CUgraph graph, const std::vector<CUgraphNode>& behind,
             CUgraphNode* made) {
  const CUDA_MEMCPY3D copy = wanted.copy();
  CUcontext context = static_cast<CUcontext>(wanted.call.driver_context());
  return GPURUN_DRIVER(wanted.driver, cuGraphAddMemcpyNode, made, graph, behind.data(),
                       behind.size(), &copy, context);
}

// A node of the refused operation stays in the graph. It does nothing, and finds the operation as
// long as it can run.
void keep_refused(Wanted& wanted, CUgraph graph) {
  wanted.operation->refused.store(true, std::memory_order_release);
  CUuserObject object = nullptr;
  if (GraphHosts::give(wanted.driver, graph, wanted.operation, &object) == 0) return;
  static_cast<void>(new GraphHosts::OperationPtr(wanted.operation));  // As long as the process.
}

// Adds both nodes, or none. `*left`: one stays, because the driver does not destroy it. The nodes
// of a graph that allocates memory stay (manual, cuGraphAddMemAllocNode).
int add_nodes(Wanted& wanted, CUgraph graph, HostNode* made, bool* left) {
  const auto first =
      wanted.node.work == GraphWork::kFunction || wanted.node.work == GraphWork::kCopyIn
          ? &add_host
          : &add_copy;
  int result = first(wanted, graph, wanted.dependencies, &made->entry);
  if (result != 0) return result;
  made->exit = made->entry;
  if (wanted.node.work == GraphWork::kFunction || wanted.node.work == GraphWork::kCopyDevice) {
    return 0;
  }
  const auto second = first == &add_host ? &add_copy : &add_host;
  result = second(wanted, graph, {made->entry}, &made->exit);
  if (result != 0) {
    *left = GPURUN_DRIVER(wanted.driver, cuGraphDestroyNode, made->entry) != 0;
  }
  return result;
}

int add(Wanted& wanted) {
  const HandleTable::Found graph =
      wanted.call.handles().find(wanted.node.graph, HandleKind::kGraph);
  if (graph.result != 0) return graph.result;
  HostNode made;
  made.graph = as<CUgraph>(graph.value);
  made.work = wanted.node.work;
  made.copies = wanted.node.width != 0;
  int result = wanted.make_operation();
  if (result != 0) return result;
  bool left = false;
  result = add_nodes(wanted, made.graph, &made, &left);
  if (result == 0 && wanted.has_operation()) {
    result = GraphHosts::give(wanted.driver, made.graph, wanted.operation, &made.object);
    if (result != 0) {
      left = GPURUN_DRIVER(wanted.driver, cuGraphDestroyNode, made.exit) != 0;
      if (made.entry != made.exit) {
        left |= GPURUN_DRIVER(wanted.driver, cuGraphDestroyNode, made.entry) != 0;
      }
    }
  }
  if (result != 0) {
    if (left && wanted.has_operation()) keep_refused(wanted, made.graph);
    return result;
  }
  if (wanted.has_operation()) wanted.topology.add(made);
  return wanted.call.handles().bind(wanted.node.node, HandleKind::kGraphNode,
                                    reinterpret_cast<std::uintptr_t>(made.exit));
}

// Capturing

CUstream stream_of(const Wanted& wanted) {
  return static_cast<CUstream>(wanted.call.driver_stream());
}

int capture_host(Wanted& wanted) {
  return GPURUN_DRIVER(wanted.driver, cuLaunchHostFunc, stream_of(wanted), &GraphHosts::run,
                       wanted.operation.get());
}

int capture_copy(Wanted& wanted) {
  const CUDA_MEMCPY3D copy = wanted.copy();
  return GPURUN_DRIVER(wanted.driver, cuMemcpy3DAsync_v2, &copy, stream_of(wanted));
}

int capture(Wanted& wanted) {
  HostNode made;
  made.work = wanted.node.work;
  made.copies = wanted.node.width != 0;
  const auto look = [&](CUgraphNode* last) {
    return look_at_capture(wanted.driver, stream_of(wanted), &made.graph, last);
  };
  int result = look(&made.entry);
  if (result == 0) result = wanted.make_operation();
  if (result != 0) return result;
  // The operation comes first, because a capture cannot be undone.
  if (wanted.has_operation()) {
    result = GraphHosts::give(wanted.driver, made.graph, wanted.operation, &made.object);
    if (result != 0) return result;
  }
  const bool host_first = made.work == GraphWork::kFunction || made.work == GraphWork::kCopyIn;
  result = host_first ? capture_host(wanted) : capture_copy(wanted);
  if (result == 0) result = look(&made.entry);
  made.exit = made.entry;
  if (result == 0 && (made.work == GraphWork::kCopyIn || made.work == GraphWork::kCopyOut)) {
    result = host_first ? capture_copy(wanted) : capture_host(wanted);
    if (result == 0) result = look(&made.exit);
  }
  if (result == 0 && made.exit != nullptr && wanted.has_operation()) wanted.topology.add(made);
  return result;
}

// Changes. `exec` nullptr: in the graph itself.

int set_copy(Wanted& wanted, CUgraphExec exec, CUgraphNode node) {
  const CUDA_MEMCPY3D copy = wanted.copy();
  if (exec == nullptr) {
    return GPURUN_DRIVER(wanted.driver, cuGraphMemcpyNodeSetParams, node, &copy);
  }
  CUcontext context = static_cast<CUcontext>(wanted.call.driver_context());
  return GPURUN_DRIVER(wanted.driver, cuGraphExecMemcpyNodeSetParams, exec, node, &copy, context);
}

// The copy comes first, because the driver may well refuse it. It hardly refuses a host node of
// ours.
int set_both(Wanted& wanted, CUgraphExec exec, const HostNode& own, bool* half_set) {
  int result = wanted.is_copy() ? set_copy(wanted, exec, own.copy()) : 0;
  if (result != 0) return result;
  const CUDA_HOST_NODE_PARAMS host = wanted.host();
  result =
      exec == nullptr
          ? GPURUN_DRIVER(wanted.driver, cuGraphHostNodeSetParams, own.host(), &host)
          : GPURUN_DRIVER(wanted.driver, cuGraphExecHostNodeSetParams, exec, own.host(), &host);
  *half_set = result != 0 && wanted.is_copy();
  return result;
}

// If the driver refuses, the graph stays as it was.
int set_in_graph(Wanted& wanted, HostNode own) {
  CUDA_MEMCPY3D before{};
  int result = 0;
  if (wanted.is_copy()) {
    result = GPURUN_DRIVER(wanted.driver, cuGraphMemcpyNodeGetParams, own.copy(), &before);
  }
  if (result == 0) result = wanted.make_operation();
  CUuserObject object = nullptr;
  if (result == 0) result = GraphHosts::give(wanted.driver, own.graph, wanted.operation, &object);
  if (result != 0) return result;
  bool half_set = false;
  result = set_both(wanted, nullptr, own, &half_set);
  CUuserObject ended = result == 0 ? own.object : object;
  if (half_set &&
      GPURUN_DRIVER(wanted.driver, cuGraphMemcpyNodeSetParams, own.copy(), &before) != 0) {
    spdlog::error(
        "a graph's copy could not be set back: it moves no bytes of the program any more");
    return result;  // The graph keeps the memory that it copies to.
  }
  (void)GPURUN_DRIVER(wanted.driver, cuGraphReleaseUserObject, own.graph, ended, 1u);
  if (result != 0) return result;
  own.object = object;
  wanted.topology.add(own);
  return 0;
}

int set_in_exec(Wanted& wanted, CUgraphExec exec, const HostNode& own) {
  GraphExecs& execs = wanted.topology.execs();
  const int made = wanted.make_operation(
      execs.shadow_of(exec, own.exit, static_cast<std::size_t>(wanted.bytes())));
  if (made != 0) return made;
  bool half_set = false;
  const int result = set_both(wanted, exec, own, &half_set);
  if (result == 0) execs.set(exec, own.exit, wanted.operation);
  // The former copy of an executable cannot be queried.
  if (half_set) execs.set_half(exec, own.exit, wanted.operation, result);
  return result;
}

// A captured copy of memory that the device reaches is a node of the driver's alone, and stays one
// with other such memory. The client needs no operation then.
void settle_reached(Wanted& wanted, CUgraphNode node) {
  const bool in = wanted.node.work == GraphWork::kCopyIn;
  if (!in && wanted.node.work != GraphWork::kCopyOut) return;
  if (!is_host(wanted, in ? wanted.node.source : wanted.node.destination)) return;
  // Another such node is the driver's half of a copy with a shadow, as in a child graph.
  CUDA_MEMCPY3D present{};
  if (GPURUN_DRIVER(wanted.driver, cuGraphMemcpyNodeGetParams, node, &present) != 0) return;
  const auto* const host = static_cast<const std::byte*>(in ? present.srcHost : present.dstHost);
  const CUmemorytype type = in ? present.srcMemoryType : present.dstMemoryType;
  const HostMemory* const memory = wanted.call.host_memory();
  if (type != CU_MEMORYTYPE_HOST || !memory->covers(reinterpret_cast<std::uintptr_t>(host), 1)) {
    return;
  }
  wanted.hosts.tell_gone(wanted.node.operation);
  wanted.node.work = GraphWork::kCopyDevice;
}

int set(Wanted& wanted) {
  const HandleTable::Found node =
      wanted.call.handles().find(wanted.node.node, HandleKind::kGraphNode);
  if (node.result != 0) return node.result;
  const auto of_driver = as<CUgraphNode>(node.value);
  const auto own = wanted.topology.find(of_driver);
  if (!own.has_value()) settle_reached(wanted, of_driver);
  if (own.has_value() ? own->work != wanted.node.work : wanted.has_operation()) {
    // The copy would change direction, or the node is in a child graph or does not exist.
    const bool copy = own.has_value() && own->work != GraphWork::kFunction && wanted.is_copy();
    if (own.has_value() && !copy) return kErrorInvalidValue;
    spdlog::warn("a graph's copy cannot change its direction yet");
    return kErrorNotSupported;
  }
  if (wanted.node.graph == 0) {
    return own.has_value() ? set_in_graph(wanted, *own) : set_copy(wanted, nullptr, of_driver);
  }
  const HandleTable::Found exec =
      wanted.call.handles().find(wanted.node.graph, HandleKind::kGraphExec);
  if (exec.result != 0) return exec.result;
  const auto in_driver = as<CUgraphExec>(exec.value);
  return own.has_value() ? set_in_exec(wanted, in_driver, *own)
                         : set_copy(wanted, in_driver, of_driver);
}

// Handlers

int take_turn_answer(Call& call) {
  GraphTurnPayload turn;
  if (call.payload().size() < sizeof turn) return kErrorInvalidValue;
  std::memcpy(&turn, call.payload().data(), sizeof turn);
  GraphHosts& hosts = HandlerState::of(call).graph_hosts();
  if (turn.step == GraphHostStep::kBytes) {
    return hosts.bytes(turn.turn, turn.offset, call.payload().subspan(sizeof turn));
  }
  if (turn.step != GraphHostStep::kDone) return kErrorInvalidValue;
  hosts.done(turn.turn);
  return 0;
}

CallOutcome run_node(Call& call, bool adds) {
  Wanted wanted(call);
  wanted.hosts.set_executor(call.executor(), call.driver_context());
  int result = wanted.read();
  if (adds && wanted.node.node != 0) call.set_created(wanted.node.node);
  if (result == 0) {
    const bool captures = call.header().order == protocol::Order::kStream;
    result = !adds ? set(wanted) : captures ? capture(wanted) : add(wanted);
  }
  if (result != 0 && !wanted.begun && wanted.has_operation()) {
    wanted.hosts.tell_gone(wanted.node.operation);
  }
  if (result != 0 && adds && wanted.node.node != 0 && !call.awaited()) {
    (void)call.handles().poison(wanted.node.node, HandleKind::kGraphNode, result);
  }
  return CallOutcome::done(result);
}

CallOutcome run_add(Call& call) {
  if (call.header().form != protocol::Form::kRaw) return CallOutcome::done(kErrorInvalidValue);
  GraphHostStep step{};
  if (call.payload().size() >= sizeof step) std::memcpy(&step, call.payload().data(), sizeof step);
  if (step != GraphHostStep::kNode) return CallOutcome::done(take_turn_answer(call));
  return run_node(call, true);
}

CallOutcome run_set(Call& call) {
  if (call.header().form != protocol::Form::kRaw) return CallOutcome::done(kErrorInvalidValue);
  return run_node(call, false);
}

// GraphUpdatePayload. Answered with GraphUpdateReply, also when it fails.
CallOutcome run_update(Call& call) {
  protocol::GraphUpdatePayload wanted;
  if (call.header().form != protocol::Form::kRaw || call.payload().size() != sizeof wanted) {
    return CallOutcome::done(kErrorInvalidValue);
  }
  std::memcpy(&wanted, call.payload().data(), sizeof wanted);
  const HandleTable::Found exec = call.handles().find(wanted.exec, HandleKind::kGraphExec);
  if (exec.result != 0) return CallOutcome::done(exec.result);
  const HandleTable::Found graph = call.handles().find(wanted.graph, HandleKind::kGraph);
  if (graph.result != 0) return CallOutcome::done(graph.result);
  HandlerState& state = HandlerState::of(call);
  CUgraphExecUpdateResultInfo info{};
  const int result = GPURUN_DRIVER(state.driver(), cuGraphExecUpdate_v2,
                                   as<CUgraphExec>(exec.value), as<CUgraph>(graph.value), &info);
  // All nodes have the graph's work now.
  if (result == 0) state.graph_topology().execs().forget(as<CUgraphExec>(exec.value));
  const auto client_node = [&](CUgraphNode node) {
    const CUgraphNode shown = state.graph_topology().shown(node);
    return call.handles().client_handle_of(reinterpret_cast<std::uintptr_t>(shown),
                                           HandleKind::kGraphNode);
  };
  protocol::GraphUpdateReply reply;
  reply.result = static_cast<std::uint32_t>(info.result);
  reply.node = client_node(info.errorNode);
  reply.from_node = client_node(info.errorFromNode);
  call.set_reply(bytes_of(reply));
  return CallOutcome::done(result);
}

// For a row of the generic path with a driver function that GraphTopology replaces.
CallOutcome run_shape(Call& call) {
  HandlerState& state = HandlerState::of(call);
  const GraphTopology::Scope scope(state.graph_topology(), call);
  return state.dispatch().run(call);
}

}  // namespace

void refuse_graph_node(Call& call, int result) {
  const std::uint16_t code = call.header().opcode;
  const bool adds = code == opcode::cuGraphAddHostNode || code == opcode::cuGraphAddMemcpyNode;
  const bool sets = code == opcode::cuGraphHostNodeSetParams ||
                    code == opcode::cuGraphMemcpyNodeSetParams ||
                    code == opcode::cuGraphExecHostNodeSetParams ||
                    code == opcode::cuGraphExecMemcpyNodeSetParams;
  GraphNodePayload node;
  if ((!adds && !sets) || call.payload().size() < sizeof node) return;
  std::memcpy(&node, call.payload().data(), sizeof node);
  if (node.step != GraphHostStep::kNode) return;
  GraphHosts& hosts = HandlerState::of(call).graph_hosts();
  hosts.set_executor(call.executor(), call.driver_context());
  hosts.tell_gone(node.operation);
  if (!adds || node.node == 0) return;
  if (call.awaited()) return;
  call.set_created(node.node);
  (void)call.handles().poison(node.node, HandleKind::kGraphNode, result);
}

void add_graph_host_handlers(Handlers& handlers) {
  for (const char* symbol : {"cuGraphAddHostNode", "cuGraphAddMemcpyNode"}) {
    set_handler(handlers, symbol, &run_add);
  }
  for (const char* symbol : {"cuGraphHostNodeSetParams", "cuGraphMemcpyNodeSetParams",
                             "cuGraphExecHostNodeSetParams", "cuGraphExecMemcpyNodeSetParams"}) {
    set_handler(handlers, symbol, &run_set);
  }
  set_handler(handlers, "cuGraphExecUpdate_v2", &run_update);
  for (const driver_abi::Row& row : driver_abi::rows()) {
    if (GraphTopology::substitute(row.opcode) == nullptr) continue;
    set_handler(handlers, row.symbol, &run_shape);
  }
}

}  // namespace gpurun::server
