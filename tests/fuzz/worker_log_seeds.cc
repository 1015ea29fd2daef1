// Worker log seeds: the input format of worker_log_fuzz.cc. A record begins with a byte that is not
// a multiple of 8, followed by 13 bytes for its header. A chunk begins with a byte that is a
// multiple of 8. Then follow their bytes.
#include "tests/fuzz/worker_log_seeds.h"

#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "driver_abi/image_length.h"
#include "driver_abi/row.h"
#include "protocol/calls/call.h"
#include "protocol/calls/device_memory.h"
#include "protocol/calls/graph_conditional.h"
#include "protocol/calls/graph_host.h"
#include "protocol/calls/graph_memory.h"
#include "protocol/calls/graph_parameters.h"
#include "protocol/calls/handle_form.h"
#include "protocol/calls/host_function.h"
#include "protocol/calls/image_bundle.h"
#include "protocol/calls/memory_pool.h"
#include "protocol/calls/module_calls.h"
#include "protocol/log/record.h"

namespace gpurun::fuzz {
namespace {

using driver_abi::HandleKind;
using protocol::Form;
using protocol::Order;

constexpr std::string_view kPtx =
    ".version 9.0\n.target sm_90\n.address_size 64\n.global .align 4 .b8 table[16];\n"
    ".visible .entry add(.param .u64 a, .param .u32 n)\n{\nret;\n}\n";

// A handle as one byte, and the handle that worker_log_fuzz.cc makes of it.
constexpr std::uint8_t short_of(HandleKind kind, unsigned index) {
  return static_cast<std::uint8_t>(static_cast<unsigned>(kind) << 4 | index);
}
constexpr std::uint64_t handle(HandleKind kind, unsigned index) {
  return protocol::kHandleTag << protocol::kHandleTagShift |
         static_cast<std::uint64_t>(kind) << protocol::kHandleKindShift | index;
}

constexpr std::uint64_t kStream = handle(HandleKind::kStream, 1);
constexpr std::uint64_t kEvent = handle(HandleKind::kEvent, 1);
constexpr std::uint64_t kModule = handle(HandleKind::kModule, 1);
constexpr std::uint64_t kFunction = handle(HandleKind::kFunction, 1);
constexpr std::uint64_t kGraph = handle(HandleKind::kGraph, 1);
constexpr std::uint64_t kExec = handle(HandleKind::kGraphExec, 1);
constexpr std::uint64_t kNodes[] = {
    handle(HandleKind::kGraphNode, 1), handle(HandleKind::kGraphNode, 2),
    handle(HandleKind::kGraphNode, 3), handle(HandleKind::kGraphNode, 4)};

struct Head {
  std::uint16_t flags = protocol::kFlagFence;
  std::uint8_t stream = 0, subject = 0, bulk = 0, lane = 0;
};

class Life {
 public:
  Life() {
    std::uint64_t word = 0;
    std::uint64_t* place = &word;
    int device = 0;
    context_ = 0;
    row("cuDevicePrimaryCtxRetain", {&place, &device}, {handle(HandleKind::kContext, 1)});
    context_ = short_of(HandleKind::kContext, 1);
  }

  void record(const char* symbol, Form form, Order order, ByteView payload, const Head& head) {
    const auto rows = driver_abi::rows();
    const auto index = static_cast<unsigned>(driver_abi::find_row(symbol) - rows.data());
    for (const unsigned byte :
         {1u, index & 255, index >> 8, static_cast<unsigned>(form) - 1,
          static_cast<unsigned>(order) - 1, unsigned{head.flags}, unsigned{head.lane},
          unsigned{context_}, unsigned{head.stream}, unsigned{head.subject}, unsigned{head.bulk},
          static_cast<unsigned>(payload.size() & 255),
          static_cast<unsigned>(payload.size() >> 8)}) {
      said_.push_back(static_cast<std::byte>(byte));
    }
    said_.insert(said_.end(), payload.begin(), payload.end());
  }
  void raw(const char* symbol, Order order, ByteView payload, const Head& head = {}) {
    record(symbol, Form::kRaw, order, payload, head);
  }
  void hot(const char* symbol, Form form, ByteView payload, const Head& head = {}) {
    record(symbol, form, Order::kStream, payload, head);
  }
  // A generated row. The arguments are as libffi takes them.
  void row(const char* symbol, std::vector<void*> arguments,
           const std::vector<std::uint64_t>& minted = {}, Order order = Order::kContext,
           const Head& head = {}) {
    protocol::PackedCall packed;
    arguments.resize(protocol::kParametersMax);
    const Status status = packed.pack(*driver_abi::find_row(symbol), arguments.data(), minted);
    if (!status.ok()) std::fprintf(stderr, "%s: %s\n", symbol, status.to_string().c_str());
    if (status.ok()) record(symbol, Form::kCall, order, packed.bytes(), head);
  }
  // Creates the object of a handle.
  void make(const char* symbol, std::uint64_t made, Order order = Order::kImmediate) {
    std::uint64_t word = 0;
    std::uint64_t* place = &word;
    unsigned flags = 0;
    row(symbol, {&place, &flags}, {made}, order);
  }
  void of_one(const char* symbol, std::uint64_t one, Order order = Order::kOrderedHost) {
    row(symbol, {&one}, {}, order);
  }
  void chunk(std::uint8_t transfer, std::uint16_t offset, std::uint16_t total, std::size_t bytes) {
    for (const unsigned byte : {0u, unsigned{transfer}, offset & 255u, offset >> 8 & 255u,
                                total & 255u, total >> 8 & 255u, static_cast<unsigned>(bytes)}) {
      said_.push_back(static_cast<std::byte>(byte));
    }
    said_.resize(said_.size() + bytes, std::byte{7});
  }
  void load() {
    const driver_abi::Image image{
        driver_abi::ImageForm::kPtx, 0, {byte_view(kPtx.data(), kPtx.size())}};
    const Bytes bundle = protocol::make_bundle(image);
    protocol::ImageLoad load;
    load.handle = kModule;
    load.digest = protocol::bundle_digest(image);
    load.image = bundle;
    load.options = {{4, 0}};
    load.info_log_bytes = 64;
    raw("cuModuleLoadDataEx", Order::kOrderedHost, protocol::pack({&load, 1}));
    raw("cuModuleGetFunction", Order::kContext,
        protocol::pack(protocol::NameRequest{kModule, kFunction, "add"}));
  }
  const Bytes& said() const { return said_; }

 private:
  Bytes said_;
  std::uint8_t context_ = 0;
};

template <typename... Parts>
Bytes joined(const Parts&... parts) {
  Bytes all;
  for (const ByteView part : {ByteView(parts)...}) all.insert(all.end(), part.begin(), part.end());
  return all;
}

protocol::LaunchPayload launch_of_add() {
  protocol::LaunchPayload launch;
  launch.function = kFunction;
  launch.parameter_bytes = 12;
  return launch;
}

const Head kOnStream{protocol::kFlagFence, short_of(HandleKind::kStream, 1)};

Bytes streams_and_events() {
  Life life;
  life.make("cuStreamCreate", kStream);
  life.make("cuEventCreate", kEvent);
  const protocol::EventPayload event;
  Head head{protocol::kFlagTell, short_of(HandleKind::kStream, 1), short_of(HandleKind::kEvent, 1)};
  life.hot("cuEventRecord", Form::kEventRecord, bytes_of(event), head);
  head.stream = 0;
  head.flags = 0;
  life.hot("cuStreamWaitEvent", Form::kStreamWait, bytes_of(event), head);
  head.flags = protocol::kFlagFence;
  std::uint64_t one = kEvent;
  life.row("cuEventQuery", {&one}, {}, Order::kLane, head);
  life.row("cuEventSynchronize", {&one}, {}, Order::kLane, head);
  one = kStream;
  life.row("cuStreamQuery", {&one}, {}, Order::kStream, kOnStream);
  life.row("cuStreamSynchronize", {&one}, {}, Order::kStream, kOnStream);
  life.row("cuCtxSynchronize", {});
  life.of_one("cuStreamDestroy_v2", kStream);
  life.of_one("cuEventDestroy_v2", kEvent, Order::kLane);
  return life.said();
}

Bytes copies() {
  Life life;
  life.make("cuStreamCreate", kStream);
  const Bytes sixteen(16, std::byte{3});
  protocol::CopyPayload copy{0, 0, 16};
  life.hot("cuMemcpyHtoDAsync_v2", Form::kCopyInline, joined(bytes_of(copy), sixteen), kOnStream);
  copy.bytes = 100;
  Head head = kOnStream;
  head.bulk = 1;
  life.hot("cuMemcpyHtoDAsync_v2", Form::kCopyIn, bytes_of(copy), head);
  life.chunk(1, 0, 100, 100);
  head.bulk = 2;
  head.flags = protocol::kFlagBulkOnDemand;
  life.hot("cuMemcpyHtoDAsync_v2", Form::kCopyIn, bytes_of(copy), head);
  life.chunk(2, 0, 100, 100);
  head.bulk = 4;
  head.flags = protocol::kFlagBulkOnDemand | protocol::kFlagPulled;
  const protocol::PulledSource source{4096, limits::kPulledBytesMin, 5, 1};
  life.hot("cuMemcpyHtoDAsync_v2", Form::kCopyIn, joined(bytes_of(copy), bytes_of(source)), head);
  head.bulk = 5;
  head.flags = protocol::kFlagPulled;  // Means kFlagWritten there.
  const protocol::WrittenDestination destination{4096, limits::kPulledBytesMin, 5, 0};
  life.hot("cuMemcpyDtoHAsync_v2", Form::kCopyOut, joined(bytes_of(copy), bytes_of(destination)),
           head);
  head.flags = 0;
  head.bulk = 3;
  life.hot("cuMemcpyDtoHAsync_v2", Form::kCopyOut, bytes_of(copy), head);
  head.bulk = 0;
  head.flags = protocol::kFlagFence;
  life.hot("cuMemcpyDtoHAsync_v2", Form::kCopyOut, bytes_of(copy), head);
  copy.source = 4096;
  life.hot("cuMemcpyDtoDAsync_v2", Form::kCopyDevice, bytes_of(copy), kOnStream);
  const protocol::MemsetPayload fill{64, 32, 8, 4, 5, 4};
  life.hot("cuMemsetD2D32Async", Form::kMemset, bytes_of(fill), kOnStream);
  std::uint64_t one = kStream;
  life.row("cuStreamSynchronize", {&one}, {}, Order::kStream, kOnStream);
  return life.said();
}

Bytes memory() {
  Life life;
  const protocol::CreditRequest wish{4096, 0, std::uint64_t{1} << 30};
  life.raw("cuMemAlloc_v2", Order::kContext, bytes_of(wish));
  const protocol::CreditRequest plain{std::uint64_t{65} << 20, 0, 0};
  life.raw("cuMemAlloc_v2", Order::kContext, bytes_of(plain));
  for (const auto kind : {protocol::ReturnKind::kFreed, protocol::ReturnKind::kPiece,
                          protocol::ReturnKind::kWindow}) {
    const protocol::MemoryReturn back{kind, 0, 1, 4096};
    life.raw("cuMemFree_v2", Order::kOrderedHost, bytes_of(back), {});
  }
  const protocol::PoolAttributePayload pool{handle(HandleKind::kMemoryPool, 1), 4, 0, 1};
  int device = 0;
  std::uint64_t word = 0;
  std::uint64_t* place = &word;
  life.row("cuDeviceGetDefaultMemPool", {&place, &device}, {handle(HandleKind::kMemoryPool, 1)});
  life.raw("cuMemPoolSetAttribute", Order::kContext, bytes_of(pool));
  life.raw("cuMemPoolGetAttribute", Order::kContext, bytes_of(pool));
  return life.said();
}

Bytes modules() {
  Life life;
  life.load();
  const Bytes block(16);
  life.hot("cuLaunchKernel", Form::kLaunch, joined(bytes_of(launch_of_add()), block));
  life.raw("cuModuleGetGlobal_v2", Order::kContext,
           protocol::pack(protocol::NameRequest{kModule, 0, "table"}));
  auto with_attribute = launch_of_add();
  with_attribute.attribute_count = 1;
  protocol::LaunchAttribute cooperative{};
  cooperative.id = 2;
  life.hot("cuLaunchKernelEx", Form::kLaunch,
           joined(bytes_of(with_attribute), block, bytes_of(cooperative)));
  life.row("cuCtxSynchronize", {});
  life.of_one("cuModuleUnload", kModule);
  return life.said();
}

Bytes graphs() {
  Life life;
  life.load();
  life.make("cuGraphCreate", kGraph, Order::kContext);
  protocol::KernelNode node;
  node.graph = kGraph;
  node.node = kNodes[0];
  node.context = handle(HandleKind::kContext, 1);
  node.launch = launch_of_add();
  node.block = Bytes(12);
  life.raw("cuGraphAddKernelNode_v2", Order::kContext, protocol::pack(node));
  protocol::GraphNodePayload host;
  host.graph = kGraph;
  host.node = kNodes[1];
  host.operation = 1;
  host.dependency_count = 1;
  life.raw("cuGraphAddHostNode", Order::kContext, joined(bytes_of(host), bytes_of(kNodes[0])));
  host.work = protocol::GraphWork::kCopyOut;
  host.node = kNodes[2];
  host.operation = 2;
  host.source.address = 4096;
  host.width = 32;
  host.lines = host.slices = 1;
  life.raw("cuGraphAddMemcpyNode", Order::kContext, joined(bytes_of(host), bytes_of(kNodes[1])));
  std::uint64_t graph = kGraph, exec = kExec, word = 0, count = 4, flags = 0, stream = 0;
  std::uint64_t* place = &word;
  std::uint64_t spares[4] = {kNodes[0], kNodes[1], kNodes[2], kNodes[3]};
  std::uint64_t* array = spares;
  std::uint64_t* size = &count;
  life.row("cuGraphGetNodes", {&graph, &array, &size});
  life.row("cuGraphInstantiateWithFlags", {&place, &graph, &flags}, {kExec});
  life.row("cuGraphLaunch", {&exec, &stream}, {}, Order::kStream);
  const protocol::GraphTurnPayload turn{protocol::GraphHostStep::kDone, 0, 1, 0};
  life.raw("cuGraphAddHostNode", Order::kImmediate, bytes_of(turn), {0});
  const protocol::GraphUpdatePayload update{kExec, kGraph};
  life.raw("cuGraphExecUpdate_v2", Order::kContext, bytes_of(update));
  life.row("cuGraphClone", {&place, &graph}, {handle(HandleKind::kGraph, 2)});
  life.of_one("cuGraphExecDestroy", kExec);
  life.of_one("cuGraphDestroy", kGraph);
  return life.said();
}

// Objects that a graph keeps, a conditional node, and parameters that are read back.
Bytes graph_objects() {
  Life life;
  life.make("cuGraphCreate", kGraph, Order::kContext);
  const std::uint64_t object = handle(HandleKind::kUserObject, 1);
  const protocol::GraphUserObjectPayload made{object, 1, 2, 0};
  life.raw("cuUserObjectCreate", Order::kContext, bytes_of(made));
  std::uint64_t graph = kGraph, of = object, word = 0, one = 1, none = 0;
  std::uint64_t* place = &word;
  life.row("cuGraphRetainUserObject", {&graph, &of, &one, &none});
  life.row("cuUserObjectRelease", {&of, &one});
  life.row("cuGraphConditionalHandleCreate", {&place, &graph, &none, &one, &one},
           {handle(HandleKind::kGraphConditional, 1)});
  const std::uint64_t body = handle(HandleKind::kGraph, 2);
  protocol::GraphConditionalPayload node{kGraph, kNodes[0], 7};
  node.body_count = 1;
  life.raw("cuGraphAddNode", Order::kContext, joined(bytes_of(node), bytes_of(body)));
  for (const char* reader : {"cuGraphKernelNodeGetParams_v2", "cuGraphMemcpyNodeGetParams",
                             "cuGraphHostNodeGetParams"}) {
    life.raw(reader, Order::kContext, bytes_of(kNodes[0]));
  }
  const protocol::GraphInstantiation wanted{kExec, kGraph, 0, kNodes[1]};
  life.raw("cuGraphInstantiateWithParams", Order::kContext, bytes_of(wanted));
  const protocol::GraphUpdatePayload update{kExec, kGraph, {kNodes[2], kNodes[3]}};
  life.raw("cuGraphExecUpdate_v2", Order::kContext, bytes_of(update));
  life.of_one("cuGraphExecDestroy", kExec);
  life.of_one("cuGraphDestroy", kGraph);
  return life.said();
}

// The form of a kernel node, whichever version of the function the program has called.
protocol::KernelNode kernel_node(std::uint64_t graph, std::uint64_t node) {
  protocol::KernelNode made;
  made.graph = graph;
  made.node = node;
  made.launch = launch_of_add();
  made.block = Bytes(12);
  return made;
}

// A change of an executable: behind its earlier launches, and before its later ones. It has no
// reply.
const Head kChange{protocol::kFlagWritesSubject, 0, short_of(HandleKind::kGraphExec, 1)};

Bytes kernel_node_changes() {
  Life life;
  life.load();
  life.make("cuGraphCreate", kGraph, Order::kContext);
  life.raw("cuGraphAddKernelNode_v2", Order::kContext,
           protocol::pack(kernel_node(kGraph, kNodes[0])));
  protocol::KernelNode second = kernel_node(kGraph, kNodes[1]);
  second.dependencies = {kNodes[0]};
  life.raw("cuGraphAddKernelNode_v2", Order::kContext, protocol::pack(second));
  life.raw("cuGraphKernelNodeSetParams_v2", Order::kContext,
           protocol::pack(kernel_node(0, kNodes[1])));
  life.raw("cuGraphKernelNodeGetParams_v2", Order::kContext, bytes_of(kNodes[1]));
  std::uint64_t from = kNodes[0], to = kNodes[1];
  life.row("cuGraphKernelNodeCopyAttributes", {&to, &from});
  return life.said();
}

Bytes batch_nodes() {
  Life life;
  life.make("cuGraphCreate", kGraph, Order::kContext);
  std::uint64_t graph = kGraph, word = 0, flags = 0;
  std::uint64_t* place = &word;
  CUstreamBatchMemOpParams write{}, barrier{};
  write.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  write.writeValue.address = 4096;
  write.writeValue.value = 7;
  barrier.memoryBarrier.operation = CU_STREAM_MEM_OP_BARRIER;
  protocol::GraphBatchPayload node;
  node.graph = kGraph;
  node.node = kNodes[0];
  node.context = handle(HandleKind::kContext, 1);
  node.operation_count = 2;
  const char* const add = "cuGraphAddBatchMemOpNode";
  life.raw(add, Order::kContext, joined(bytes_of(node), bytes_of(write), bytes_of(barrier)));
  node.node = kNodes[1];
  node.operation_count = node.dependency_count = 1;
  life.raw(add, Order::kContext, joined(bytes_of(node), bytes_of(kNodes[0]), bytes_of(write)));
  node.graph = 0;
  node.dependency_count = 0;
  life.raw("cuGraphBatchMemOpNodeSetParams", Order::kContext,
           joined(bytes_of(node), bytes_of(write)));
  life.raw("cuGraphBatchMemOpNodeGetParams", Order::kContext, bytes_of(kNodes[1]));
  life.row("cuGraphInstantiateWithFlags", {&place, &graph, &flags}, {kExec});
  node.graph = kExec;
  life.raw("cuGraphExecBatchMemOpNodeSetParams", Order::kContext,
           joined(bytes_of(node), bytes_of(barrier)));
  return life.said();
}

// A graph moves into a node of another one. Then the node ends, and all that is in it.
Bytes moved_graphs() {
  Life life;
  const std::uint64_t child = handle(HandleKind::kGraph, 2);
  life.make("cuGraphCreate", kGraph, Order::kContext);
  life.make("cuGraphCreate", child, Order::kContext);
  std::uint64_t graph = kGraph, inside = child, word = 0, count = 0;
  std::uint64_t* place = &word;
  std::uint64_t* none = nullptr;
  life.row("cuGraphAddEmptyNode", {&place, &graph, &none, &count}, {kNodes[0]});
  life.row("cuGraphAddEmptyNode", {&place, &inside, &none, &count}, {kNodes[1]});
  protocol::GraphMovePayload move;
  move.graph = kGraph;
  move.node = kNodes[2];
  move.child = child;
  move.dependency_count = 1;
  const CUgraphEdgeData plain{};
  life.raw("cuGraphAddNode_v2", Order::kContext,
           joined(bytes_of(move), bytes_of(kNodes[0]), bytes_of(plain)));
  std::uint64_t node = kNodes[2];
  life.row("cuGraphChildGraphNodeGetGraph", {&node, &place}, {child});
  life.raw("cuGraphNodeGetParams", Order::kContext, bytes_of(kNodes[2]));
  life.of_one("cuGraphDestroyNode", kNodes[2], Order::kContext);
  life.row("cuGraphAddEmptyNode", {&place, &inside, &none, &count}, {kNodes[3]});
  life.of_one("cuGraphDestroy", kGraph);
  return life.said();
}

// Changes without replies, between launches. The one without a node settles them. A client ends the
// graph only behind its reply, for which this one does not wait.
Bytes posted_changes() {
  Life life;
  life.load();
  life.make("cuGraphCreate", kGraph, Order::kContext);
  std::uint64_t graph = kGraph, exec = kExec, word = 0, count = 0, flags = 0, stream = 0;
  std::uint64_t context = handle(HandleKind::kContext, 1), child = handle(HandleKind::kGraph, 2);
  std::uint64_t filled = kNodes[1], nested = kNodes[2];
  std::uint64_t* place = &word;
  std::uint64_t* none = nullptr;
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = 4096;
  fill.elementSize = 4;
  fill.width = fill.height = 1;
  CUDA_MEMSET_NODE_PARAMS* filling = &fill;
  life.make("cuGraphCreate", child, Order::kContext);
  life.raw("cuGraphAddKernelNode_v2", Order::kContext,
           protocol::pack(kernel_node(kGraph, kNodes[0])));
  life.row("cuGraphAddMemsetNode", {&place, &graph, &none, &count, &filling, &context}, {filled});
  life.row("cuGraphAddChildGraphNode", {&place, &graph, &none, &count, &child}, {nested});
  protocol::GraphNodePayload host;
  host.graph = kGraph;
  host.node = kNodes[3];
  host.operation = 1;
  life.raw("cuGraphAddHostNode", Order::kContext, bytes_of(host));
  life.row("cuGraphInstantiateWithFlags", {&place, &graph, &flags}, {kExec});
  Head launch{0, 0, kChange.subject};
  life.row("cuGraphLaunch", {&exec, &stream}, {}, Order::kStream, launch);
  const char* const set_kernel = "cuGraphExecKernelNodeSetParams_v2";
  life.raw(set_kernel, Order::kLane, protocol::pack(kernel_node(kExec, kNodes[0])), kChange);
  life.row("cuGraphExecMemsetNodeSetParams", {&exec, &filled, &filling, &context}, {}, Order::kLane,
           kChange);
  life.row("cuGraphExecChildGraphNodeSetParams", {&exec, &nested, &child}, {}, Order::kLane,
           kChange);
  host.graph = kExec;
  host.operation = 2;
  life.raw("cuGraphExecHostNodeSetParams", Order::kLane, bytes_of(host), kChange);
  life.row("cuGraphLaunch", {&exec, &stream}, {}, Order::kStream, launch);
  Head settled = kChange;
  settled.flags |= protocol::kFlagFence;
  life.raw(set_kernel, Order::kLane, {}, settled);
  return life.said();
}

// Kernel nodes with an edge for programmatic launches.
Bytes programmatic_edges() {
  Life life;
  life.load();
  life.make("cuGraphCreate", kGraph, Order::kContext);
  for (const std::uint64_t node : {kNodes[0], kNodes[1]}) {
    life.raw("cuGraphAddKernelNode_v2", Order::kContext, protocol::pack(kernel_node(kGraph, node)));
  }
  std::uint64_t graph = kGraph, from = kNodes[0], to = kNodes[1], count = 1;
  CUgraphEdgeData edge{};
  edge.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
  edge.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  std::uint64_t *first = &from, *second = &to, *size = &count;
  CUgraphEdgeData* data = &edge;
  life.row("cuGraphAddDependencies_v2", {&graph, &first, &second, &data, &count});
  life.row("cuGraphGetEdges_v2", {&graph, &first, &second, &data, &size});
  life.row("cuGraphNodeGetDependencies_v2", {&to, &first, &data, &size});
  life.row("cuGraphNodeGetDependentNodes_v2", {&from, &first, &data, &size});
  life.row("cuGraphRemoveDependencies_v2", {&graph, &first, &second, &data, &count});
  return life.said();
}

Bytes graph_memory() {
  Life life;
  life.make("cuGraphCreate", kGraph, Order::kContext);
  std::uint64_t graph = kGraph, exec = kExec, word = 0, count = 0, flags = 0, stream = 0;
  std::uint64_t* place = &word;
  std::uint64_t* none = nullptr;
  life.row("cuGraphAddEmptyNode", {&place, &graph, &none, &count}, {kNodes[0]});
  protocol::GraphMemoryPayload node;
  node.graph = kGraph;
  node.node = kNodes[1];
  node.properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  node.properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  node.bytes = 4096;
  node.dependency_count = node.access_count = 1;
  const CUmemAccessDesc access{node.properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  life.raw("cuGraphAddMemAllocNode", Order::kContext,
           joined(bytes_of(node), bytes_of(kNodes[0]), bytes_of(access)));
  life.raw("cuGraphMemAllocNodeGetParams", Order::kContext, bytes_of(kNodes[1]));
  life.row("cuGraphInstantiateWithFlags", {&place, &graph, &flags}, {kExec});
  life.row("cuGraphLaunch", {&exec, &stream}, {}, Order::kStream);
  life.of_one("cuGraphExecDestroy", kExec);
  life.of_one("cuGraphDestroy", kGraph);
  return life.said();
}

Bytes capture() {
  Life life;
  life.load();
  life.make("cuStreamCreate", kStream);
  std::uint64_t stream = kStream, word = 0;
  unsigned mode = 2;
  std::uint64_t* place = &word;
  life.row("cuStreamBeginCapture_v2", {&stream, &mode}, {}, Order::kStream, kOnStream);
  life.hot("cuLaunchKernel", Form::kLaunch, joined(bytes_of(launch_of_add()), Bytes(16)),
           kOnStream);
  const protocol::HostFunctionPayload gate{protocol::HostFunctionStep::kGate, 0, 1};
  life.raw("cuLaunchHostFunc", Order::kStream, bytes_of(gate), kOnStream);
  life.row("cuStreamEndCapture", {&stream, &place}, {kGraph}, Order::kStream, kOnStream);
  return life.said();
}

Bytes host_functions() {
  Life life;
  life.make("cuStreamCreate", kStream);
  for (const std::uint64_t ticket : {1u, 2u}) {
    const protocol::HostFunctionPayload gate{protocol::HostFunctionStep::kGate, 0, ticket};
    Head head = kOnStream;
    head.flags = 0;
    life.raw("cuLaunchHostFunc", Order::kStream, bytes_of(gate), head);
    const protocol::HostFunctionPayload release{protocol::HostFunctionStep::kRelease, 0, ticket};
    life.raw("cuLaunchHostFunc", Order::kImmediate, bytes_of(release), {0});
    const protocol::HostFunctionPayload wait{protocol::HostFunctionStep::kWait, 0, ticket};
    life.raw("cuLaunchHostFunc", Order::kImmediate, bytes_of(wait));
  }
  std::uint64_t one = kStream;
  life.row("cuStreamSynchronize", {&one}, {}, Order::kStream, kOnStream);
  return life.said();
}

}  // namespace

void worker_log_lives(const std::function<void(const std::string&, const Bytes&)>& write) {
  write("streams_and_events", streams_and_events());
  write("copies", copies());
  write("memory", memory());
  write("modules", modules());
  write("graphs", graphs());
  write("graph_memory", graph_memory());
  write("graph_objects", graph_objects());
  write("kernel_node_changes", kernel_node_changes());
  write("batch_nodes", batch_nodes());
  write("moved_graphs", moved_graphs());
  write("posted_changes", posted_changes());
  write("programmatic_edges", programmatic_edges());
  write("capture", capture());
  write("host_functions", host_functions());
}

}  // namespace gpurun::fuzz
