// Driver API: the parameters of nodes of each type, read by cuGraphNodeGetParams and by the
// function of the type. Kernel nodes by the functions of CUDA 11. Memory operations as nodes. Child
// graphs that move into their node.
#include <dlfcn.h>

#include <cstring>
#include <vector>

#include "driver_test.h"

namespace {

constexpr unsigned kCount = 256;
constexpr size_t kBytes = kCount * sizeof(unsigned);

void expect(CUresult result, CUresult wanted, const char* what) {
  if (result == wanted) return;
  const char* name = "unknown";
  (void)cuGetErrorName(result, &name);
  cuda_check::fail(__FILE__, __LINE__, what, name);
}

void check(bool right, const char* what) {
  if (!right) cuda_check::fail(__FILE__, __LINE__, what, "is wrong");
}

// As a program finds a function that was built against an older or newer cuda.h.
template <typename Function>
Function found(const char* name, int version) {
  void* address = nullptr;
  CUdriverProcAddressQueryResult status;
  MUST(cuGetProcAddress(name, &address, version, CU_GET_PROC_ADDRESS_DEFAULT, &status));
  if (address == nullptr) cuda_check::fail(__FILE__, __LINE__, name, "not found");
  return reinterpret_cast<Function>(address);
}

CUgraphNodeParams read(CUgraphNode node) {
  static const auto reader =
      found<CUresult (*)(CUgraphNode, CUgraphNodeParams*)>("cuGraphNodeGetParams", 13020);
  CUgraphNodeParams made;
  std::memset(&made, 0x5a, sizeof made);
  MUST(reader(node, &made));
  expect(reader(node, nullptr), CUDA_ERROR_INVALID_VALUE, "no place for parameters");
  return made;
}

CUcontext current() {
  CUcontext context;
  MUST(cuCtxGetCurrent(&context));
  return context;
}

struct Graph {
  CUgraph graph;
  Graph() { MUST(cuGraphCreate(&graph, 0)); }
  ~Graph() { MUST(cuGraphDestroy(graph)); }
  Graph(const Graph&) = delete;

  CUgraphNode add(CUgraphNodeParams parameters, const std::vector<CUgraphNode>& behind = {}) const {
    CUgraphNode node;
    MUST(cuGraphAddNode(&node, graph, behind.data(), nullptr, behind.size(), &parameters));
    return node;
  }
};

CUgraphNodeParams of_type(CUgraphNodeType type) {
  CUgraphNodeParams made = {};
  made.type = type;
  return made;
}

CUgraphNodeParams memset_of(CUdeviceptr to, unsigned value) {
  CUgraphNodeParams made = of_type(CU_GRAPH_NODE_TYPE_MEMSET);
  made.memset.dst = to;
  made.memset.value = value;
  made.memset.elementSize = 4;
  made.memset.width = kCount;
  made.memset.height = 1;
  made.memset.ctx = current();
  return made;
}

CUgraphNodeParams copy_of(void* to, CUdeviceptr from) {
  CUgraphNodeParams made = of_type(CU_GRAPH_NODE_TYPE_MEMCPY);
  CUDA_MEMCPY3D& copy = made.memcpy.copyParams;
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = to;
  copy.WidthInBytes = kBytes;
  copy.Height = copy.Depth = 1;
  made.memcpy.copyCtx = current();
  return made;
}

CUgraphNodeParams child_of(CUgraph child, CUgraphChildGraphNodeOwnership ownership) {
  CUgraphNodeParams made = of_type(CU_GRAPH_NODE_TYPE_GRAPH);
  made.graph.graph = child;
  made.graph.ownership = ownership;
  return made;
}

CUgraphNodeParams batch_of(std::vector<CUstreamBatchMemOpParams>* list) {
  CUgraphNodeParams made = of_type(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
  made.memOp.ctx = current();
  made.memOp.count = static_cast<unsigned>(list->size());
  made.memOp.paramArray = list->data();
  return made;
}

CUstreamBatchMemOpParams write_of(CUdeviceptr to, unsigned value) {
  CUstreamBatchMemOpParams made = {};
  made.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  made.writeValue.address = to;
  made.writeValue.value = value;
  return made;
}
CUstreamBatchMemOpParams wait_of(CUdeviceptr at, unsigned value) {
  CUstreamBatchMemOpParams made = {};
  made.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  made.waitValue.address = at;
  made.waitValue.value = value;
  made.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  return made;
}

void run(CUgraph graph, CUstream stream) {
  CUgraphExec exec;
  MUST(cuGraphInstantiate(&exec, graph, 0));
  MUST(cuGraphLaunch(exec, stream));
  MUST(cuStreamSynchronize(stream));
  MUST(cuGraphExecDestroy(exec));
}

void CUDA_CB nothing(void*) {}

void read_plain_types(const CUdeviceptr memory) {
  Graph graph;
  std::vector<unsigned> seen(kCount), from(kCount);
  const CUgraphNodeParams out = read(graph.add(copy_of(seen.data(), memory)));
  std::printf("copy out: %d, %d %d, %zu, context %d\n", out.type,
              out.memcpy.copyParams.dstHost == seen.data(),
              out.memcpy.copyParams.srcDevice == memory, out.memcpy.copyParams.WidthInBytes,
              out.memcpy.copyCtx == current());
  CUgraphNodeParams wanted = copy_of(seen.data(), memory);
  wanted.memcpy.copyParams.srcMemoryType = CU_MEMORYTYPE_HOST;
  wanted.memcpy.copyParams.srcHost = from.data();
  const CUgraphNodeParams host_copy = read(graph.add(wanted));
  std::printf("copy of host memory: %d, %d, context %d\n", host_copy.type,
              host_copy.memcpy.copyParams.srcHost == from.data(),
              host_copy.memcpy.copyCtx == current());
  wanted = copy_of(nullptr, memory);
  wanted.memcpy.copyParams.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  wanted.memcpy.copyParams.dstDevice = memory + 8;
  wanted.memcpy.copyParams.WidthInBytes = 8;
  const CUgraphNodeParams within = read(graph.add(wanted));
  std::printf("copy within: %d, %d, context %d\n", within.type,
              within.memcpy.copyParams.dstDevice == memory + 8, within.memcpy.copyCtx == current());
  const CUgraphNodeParams fill = read(graph.add(memset_of(memory, 9)));
  std::printf("memset: %d, %d, value %u, width %zu, context %d\n", fill.type,
              fill.memset.dst == memory, fill.memset.value, fill.memset.width,
              fill.memset.ctx == current());
  wanted = of_type(CU_GRAPH_NODE_TYPE_HOST);
  wanted.host.fn = &nothing;
  wanted.host.userData = &seen;
  const CUgraphNodeParams host = read(graph.add(wanted));
  std::printf("host: %d, %d %d\n", host.type, host.host.fn == &nothing,
              host.host.userData == &seen);
  const CUgraphNodeParams empty = read(graph.add(of_type(CU_GRAPH_NODE_TYPE_EMPTY)));
  std::printf("empty: %d\n", empty.type);
  const CUevent event = Device::event();
  for (const CUgraphNodeType type :
       {CU_GRAPH_NODE_TYPE_EVENT_RECORD, CU_GRAPH_NODE_TYPE_WAIT_EVENT}) {
    wanted = of_type(type);
    wanted.eventRecord.event = event;
    const CUgraphNodeParams of_event = read(graph.add(wanted));
    std::printf("event: %d, %d\n", of_event.type, of_event.eventRecord.event == event);
  }
}

void read_kernel(const Device& device, const CUdeviceptr memory) {
  Graph graph;
  CUdeviceptr to = memory;
  unsigned count = kCount, value = 5;
  void* arguments[3] = {&to, &count, &value};
  CUgraphNodeParams wanted = of_type(CU_GRAPH_NODE_TYPE_KERNEL);
  wanted.kernel.func = device.fill;
  wanted.kernel.gridDimX = wanted.kernel.gridDimY = wanted.kernel.gridDimZ = 1;
  wanted.kernel.blockDimX = kCount;
  wanted.kernel.blockDimY = wanted.kernel.blockDimZ = 1;
  wanted.kernel.kernelParams = arguments;
  const CUgraphNode node = graph.add(wanted);
  const CUgraphNodeParams kernel = read(node);
  check(kernel.kernel.kernelParams != nullptr, "kernelParams");
  std::printf("kernel: %d, %d, block %u, value %u\n", kernel.type,
              kernel.kernel.func == device.fill, kernel.kernel.blockDimX,
              *static_cast<unsigned*>(kernel.kernel.kernelParams[2]));
}

void read_types_with_graphs(const CUdeviceptr memory) {
  Graph graph, child;
  (void)child.add(memset_of(memory, 1));
  const CUgraphNode nested = graph.add(child_of(child.graph, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE));
  const CUgraphNodeParams of_child = read(nested);
  CUgraph inside;
  MUST(cuGraphChildGraphNodeGetGraph(nested, &inside));
  std::printf("child: %d, own graph %d, the program's %d, ownership %d\n", of_child.type,
              of_child.graph.graph == inside, of_child.graph.graph == child.graph,
              static_cast<int>(of_child.graph.ownership));
  CUgraphNodeParams wanted = of_type(CU_GRAPH_NODE_TYPE_MEM_ALLOC);
  wanted.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.alloc.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.alloc.bytesize = kBytes;
  CUgraphNode node;
  MUST(cuGraphAddNode(&node, graph.graph, &nested, nullptr, 1, &wanted));
  const CUgraphNodeParams allocation = read(node);
  std::printf("allocation: %d, %d, %zu bytes, device %d\n", allocation.type,
              allocation.alloc.dptr == wanted.alloc.dptr, allocation.alloc.bytesize,
              allocation.alloc.poolProps.location.id);
  CUgraphNodeParams release = of_type(CU_GRAPH_NODE_TYPE_MEM_FREE);
  release.free.dptr = wanted.alloc.dptr;
  const CUgraphNodeParams of_free = read(graph.add(release, {node}));
  std::printf("free: %d, %d\n", of_free.type, of_free.free.dptr == wanted.alloc.dptr);

  Graph other;
  CUgraphConditionalHandle handle;
  MUST(cuGraphConditionalHandleCreate(&handle, other.graph, current(), 1,
                                      CU_GRAPH_COND_ASSIGN_DEFAULT));
  wanted = of_type(CU_GRAPH_NODE_TYPE_CONDITIONAL);
  wanted.conditional.handle = handle;
  wanted.conditional.type = CU_GRAPH_COND_TYPE_IF;
  wanted.conditional.size = 2;
  wanted.conditional.ctx = current();
  MUST(cuGraphAddNode(&node, other.graph, nullptr, nullptr, 0, &wanted));
  const CUgraphNodeParams conditional = read(node);
  std::printf("conditional: %d, %d, type %d, %u bodies, %d %d, context %d\n", conditional.type,
              conditional.conditional.handle == handle, conditional.conditional.type,
              conditional.conditional.size,
              conditional.conditional.phGraph_out[0] == wanted.conditional.phGraph_out[0],
              conditional.conditional.phGraph_out[1] == wanted.conditional.phGraph_out[1],
              conditional.conditional.ctx == current());
}

// The copy and the fill of a capture run in the context of their stream.
void read_captured(const CUdeviceptr memory) {
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  std::vector<unsigned> seen(kCount);
  MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  MUST(cuMemsetD32Async(memory, 3, kCount, stream));
  MUST(cuMemcpyDtoHAsync(seen.data(), memory, kBytes, stream));
  std::vector<CUstreamBatchMemOpParams> list = {write_of(memory, 1), write_of(memory + 4, 2)};
  MUST(cuStreamBatchMemOp(stream, 2, list.data(), 0));
  CUgraph graph;
  MUST(cuStreamEndCapture(stream, &graph));
  CUgraphNode nodes[8];
  size_t count = 8;
  MUST(cuGraphGetNodes(graph, nodes, &count));
  std::printf("captured: %zu nodes\n", count);
  for (size_t i = 0; i < count; ++i) {
    const CUgraphNodeParams node = read(nodes[i]);
    const bool fill = node.type == CU_GRAPH_NODE_TYPE_MEMSET;
    const bool batch = node.type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    const CUcontext context = fill ? node.memset.ctx : batch ? node.memOp.ctx : node.memcpy.copyCtx;
    std::printf("captured: %d, context %d, operations %u\n", node.type, context == current(),
                batch ? node.memOp.count : 0);
  }
  MUST(cuGraphDestroy(graph));
  MUST(cuStreamDestroy(stream));
}

void use_functions_of_cuda_11(const Device& device, const CUdeviceptr memory) {
  using Parameters = CUDA_KERNEL_NODE_PARAMS_v1;
  const auto add =
      found<CUresult (*)(CUgraphNode*, CUgraph, const CUgraphNode*, size_t, const Parameters*)>(
          "cuGraphAddKernelNode", 11000);
  const auto get =
      found<CUresult (*)(CUgraphNode, Parameters*)>("cuGraphKernelNodeGetParams", 11000);
  const auto set =
      found<CUresult (*)(CUgraphNode, const Parameters*)>("cuGraphKernelNodeSetParams", 11000);
  const auto set_in_exec = found<CUresult (*)(CUgraphExec, CUgraphNode, const Parameters*)>(
      "cuGraphExecKernelNodeSetParams", 11000);
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  Graph graph;
  CUdeviceptr to = memory;
  unsigned count = kCount, value = 11;
  void* arguments[3] = {&to, &count, &value};
  // What lies behind the older structure is not its kernel or its context.
  struct {
    Parameters old;
    void* behind[2];
  } given = {};
  std::memset(&given, 0x5a, sizeof given);
  given.old = {device.fill, 1, 1, 1, kCount, 1, 1, 0, arguments, nullptr};
  CUgraphNode node;
  MUST(add(&node, graph.graph, nullptr, 0, &given.old));
  run(graph.graph, stream);
  std::printf("added: %u\n", Device::read(memory));
  auto answer = given;
  std::memset(&answer, 0x5a, sizeof answer);
  MUST(get(node, &answer.old));
  check(answer.old.kernelParams != nullptr, "kernelParams");
  std::printf("read: %d, block %u, value %u, behind it %d\n", answer.old.func == device.fill,
              answer.old.blockDimX, *static_cast<unsigned*>(answer.old.kernelParams[2]),
              std::memcmp(answer.behind, given.behind, sizeof given.behind));
  value = 12;
  MUST(set(node, &given.old));
  CUgraphExec exec;
  MUST(cuGraphInstantiate(&exec, graph.graph, 0));
  MUST(cuGraphLaunch(exec, stream));
  MUST(cuStreamSynchronize(stream));
  std::printf("set: %u\n", Device::read(memory));
  for (value = 13; value < 16; ++value) {
    MUST(set_in_exec(exec, node, &given.old));
    MUST(cuGraphLaunch(exec, stream));
    MUST(cuStreamSynchronize(stream));
    std::printf("set in the executable: %u\n", Device::read(memory));
  }
  expect(add(&node, graph.graph, nullptr, 0, nullptr), CUDA_ERROR_INVALID_VALUE, "no parameters");
  expect(get(node, nullptr), CUDA_ERROR_INVALID_VALUE, "no place for parameters");
  MUST(cuGraphExecDestroy(exec));
  MUST(cuStreamDestroy(stream));
}

void use_memory_operations(const CUdeviceptr memory) {
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUstream other = Device::stream(CU_STREAM_NON_BLOCKING);
  Graph graph;
  MUST(cuMemsetD32(memory, 0, kCount));
  MUST(cuCtxSynchronize());  // The streams do not wait for the default one.
  std::vector<CUstreamBatchMemOpParams> waits = {wait_of(memory, 7), write_of(memory + 4, 8)};
  CUDA_BATCH_MEM_OP_NODE_PARAMS given = {current(), 2, waits.data(), 0};
  CUgraphNode first;
  MUST(cuGraphAddBatchMemOpNode(&first, graph.graph, nullptr, 0, &given));
  std::vector<CUstreamBatchMemOpParams> writes = {write_of(memory + 8, 9)};
  const CUgraphNode second = graph.add(batch_of(&writes), {first});
  CUgraphExec exec;
  MUST(cuGraphInstantiate(&exec, graph.graph, 0));
  MUST(cuGraphLaunch(exec, stream));
  MUST(cuStreamWriteValue32(other, memory, 7, 0));  // The graph waits for this.
  MUST(cuStreamSynchronize(stream));
  std::printf("operations: %u %u\n", Device::read(memory + 4), Device::read(memory + 8));

  CUDA_BATCH_MEM_OP_NODE_PARAMS answer = {};
  MUST(cuGraphBatchMemOpNodeGetParams(first, &answer));
  std::printf("read: context %d, %u operations, %d, value %u\n", answer.ctx == current(),
              answer.count, answer.paramArray[0].operation, answer.paramArray[1].writeValue.value);
  const CUgraphNodeParams any = read(second);
  std::printf("read: %d, %u operations, %d, value %u\n", any.type, any.memOp.count,
              any.memOp.paramArray[0].writeValue.address == memory + 8,
              any.memOp.paramArray[0].writeValue.value);
  waits = {write_of(memory + 4, 18)};
  given = {current(), 1, waits.data(), 0};
  MUST(cuGraphExecBatchMemOpNodeSetParams(exec, first, &given));
  MUST(cuGraphLaunch(exec, stream));
  MUST(cuStreamSynchronize(stream));
  std::printf("set in the executable: %u\n", Device::read(memory + 4));
  writes = {write_of(memory + 8, 19), write_of(memory + 12, 20)};
  CUgraphNodeParams changed = batch_of(&writes);
  MUST(cuGraphNodeSetParams(second, &changed));
  MUST(cuGraphBatchMemOpNodeSetParams(first, &given));
  run(graph.graph, stream);
  std::printf("set in the graph: %u %u\n", Device::read(memory + 8), Device::read(memory + 12));

  given.flags = 1;
  expect(cuGraphAddBatchMemOpNode(&first, graph.graph, nullptr, 0, &given),
         CUDA_ERROR_INVALID_VALUE, "flags");
  given = {current(), 257, waits.data(), 0};
  expect(cuGraphAddBatchMemOpNode(&first, graph.graph, nullptr, 0, &given),
         CUDA_ERROR_INVALID_VALUE, "too many operations");
  waits = {write_of(memory + 2, 1)};
  given = {current(), 1, waits.data(), 0};
  expect(cuGraphAddBatchMemOpNode(&first, graph.graph, nullptr, 0, &given),
         CUDA_ERROR_INVALID_VALUE, "an odd address");
  size_t count = 0;
  MUST(cuGraphGetNodes(graph.graph, nullptr, &count));
  std::printf("operations: %zu nodes\n", count);
  MUST(cuGraphExecDestroy(exec));
  MUST(cuStreamDestroy(other));
  MUST(cuStreamDestroy(stream));
}

void move_graphs(const Device& device, const CUdeviceptr memory) {
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  std::vector<unsigned> seen(kCount);
  CUgraph child;
  MUST(cuGraphCreate(&child, 0));
  CUgraphNodeParams fill = memset_of(memory, 21), copy = copy_of(seen.data(), memory);
  CUgraphNode filled, copied, node;
  MUST(cuGraphAddNode(&filled, child, nullptr, nullptr, 0, &fill));
  MUST(cuGraphAddNode(&copied, child, &filled, nullptr, 1, &copy));
  CUgraphExec exec;
  {
    Graph parent, second;
    const CUgraphNode before = parent.add(memset_of(memory, 1));
    const CUgraphNodeParams moves = child_of(child, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE);
    CUgraphNodeParams given = moves;
    // A refused edge leaves the graph to the program.
    CUgraphEdgeData early = {};
    early.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
    expect(cuGraphAddNode(&node, parent.graph, &before, &early, 1, &given),
           CUDA_ERROR_INVALID_VALUE, "a programmatic edge behind a memset");
    given = child_of(child, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE);
    expect(cuGraphAddNode(&node, child, nullptr, nullptr, 0, &given), CUDA_ERROR_INVALID_VALUE,
           "a graph into itself");
    node = parent.add(moves, {before});
    CUgraph inside;
    MUST(cuGraphChildGraphNodeGetGraph(node, &inside));
    const CUgraphNodeParams read_back = read(node);
    size_t count = 0;
    MUST(cuGraphGetNodes(child, nullptr, &count));
    CUgraphNodeType type;
    MUST(cuGraphNodeGetType(copied, &type));
    std::printf("moved: the same graph %d %d, %zu nodes, type %d\n", inside == child,
                read_back.graph.graph == child, count, type);

    given = moves;
    expect(cuGraphAddNode(&node, second.graph, nullptr, nullptr, 0, &given),
           CUDA_ERROR_INVALID_VALUE, "a graph that has moved");
    given = child_of(child, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE);
    expect(cuGraphAddNode(&node, second.graph, nullptr, nullptr, 0, &given),
           CUDA_ERROR_INVALID_VALUE, "a clone of it as a child");
    expect(cuGraphDestroy(child), CUDA_ERROR_INVALID_VALUE, "its end");
    expect(cuGraphInstantiate(&exec, child, 0), CUDA_ERROR_INVALID_VALUE, "its instantiation");
    MUST(cuGraphInstantiate(&exec, parent.graph, 0));
    CUgraphExecUpdateResultInfo info = {};
    expect(cuGraphExecUpdate(exec, child, &info), CUDA_ERROR_INVALID_VALUE, "an update by it");
    CUgraphNodeParams allocation = of_type(CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    allocation.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    allocation.alloc.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    allocation.alloc.bytesize = kBytes;
    expect(cuGraphAddNode(&node, child, nullptr, nullptr, 0, &allocation), CUDA_ERROR_INVALID_VALUE,
           "an allocation in it");

    MUST(cuGraphLaunch(exec, stream));
    MUST(cuStreamSynchronize(stream));
    std::printf("moved: %u, copied %u\n", Device::read(memory), seen[kCount - 1]);
    // The program may change it. An executable keeps what it was.
    CUgraphNodeParams other = memset_of(memory, 22);
    MUST(cuGraphNodeSetParams(filled, &other));
    MUST(cuGraphLaunch(exec, stream));
    MUST(cuStreamSynchronize(stream));
    std::printf("the same executable: %u\n", seen[kCount - 1]);
    run(parent.graph, stream);
    std::printf("another one: %u\n", seen[kCount - 1]);
    // A clone has a graph of its own.
    CUgraph clone;
    MUST(cuGraphClone(&clone, parent.graph));
    CUgraphNode of_clone;
    MUST(cuGraphNodeFindInClone(&of_clone, read_back.graph.graph == child ? before : node, clone));
    CUgraphNode nodes[4];
    count = 4;
    MUST(cuGraphGetNodes(clone, nodes, &count));
    for (size_t i = 0; i < count; ++i) {
      if (read(nodes[i]).type != CU_GRAPH_NODE_TYPE_GRAPH) continue;
      std::printf("clone: its own graph %d\n", read(nodes[i]).graph.graph != child);
    }
    MUST(cuGraphDestroy(clone));
  }
  // The child has ended with its parent, and the executable lives on.
  size_t count = 0;
  expect(cuGraphGetNodes(child, nullptr, &count), CUDA_ERROR_INVALID_VALUE, "the ended child");
  CUgraphNodeType type;
  expect(cuGraphNodeGetType(copied, &type), CUDA_ERROR_INVALID_VALUE, "a node of it");
  expect(cuGraphDestroy(child), CUDA_ERROR_INVALID_VALUE, "its second end");
  seen.assign(kCount, 0);
  MUST(cuGraphLaunch(exec, stream));
  MUST(cuStreamSynchronize(stream));
  std::printf("after the end: %u\n", seen[kCount - 1]);
  MUST(cuGraphExecDestroy(exec));
  MUST(cuStreamDestroy(stream));
  (void)device;
}

// What moved into a node ends with that node, at any depth. Each later use is refused at its call,
// also by calls that the client posts.
void end_moved_graphs(const CUdeviceptr memory) {
  Graph parent, other;
  CUgraph child, grandchild;
  MUST(cuGraphCreate(&child, 0));
  MUST(cuGraphCreate(&grandchild, 0));
  CUgraphNodeParams fill = memset_of(memory, 41);
  const CUgraphNodeParams empty = of_type(CU_GRAPH_NODE_TYPE_EMPTY);
  CUgraphNode filled, deepest, inner, node;
  MUST(cuGraphAddNode(&filled, child, nullptr, nullptr, 0, &fill));
  MUST(cuGraphAddNode(&deepest, grandchild, nullptr, nullptr, 0, &fill));
  CUgraphNodeParams moves = child_of(grandchild, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE);
  MUST(cuGraphAddNode(&inner, child, nullptr, nullptr, 0, &moves));
  const CUgraphNode outer = parent.add(child_of(child, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE));
  const CUgraphNode beside = parent.add(empty);

  MUST(cuGraphDestroyNode(outer));
  for (const CUgraph ended : {child, grandchild}) {
    expect(cuGraphAddEmptyNode(&node, ended, nullptr, 0), CUDA_ERROR_INVALID_VALUE,
           "a node in a graph that has ended with its node");
    expect(cuGraphAddChildGraphNode(&node, other.graph, nullptr, 0, ended),
           CUDA_ERROR_INVALID_VALUE, "a child that has ended with its node");
    expect(cuGraphDestroy(ended), CUDA_ERROR_INVALID_VALUE, "its second end");
  }
  for (const CUgraphNode ended : {outer, inner, filled, deepest}) {
    expect(cuGraphAddEmptyNode(&node, other.graph, &ended, 1), CUDA_ERROR_INVALID_VALUE,
           "a dependency on a node that has ended");
    expect(cuGraphNodeSetParams(ended, &fill), CUDA_ERROR_INVALID_VALUE,
           "a change of a node that has ended");
    expect(cuGraphDestroyNode(ended), CUDA_ERROR_INVALID_VALUE, "the second end of a node");
  }
  // The rest of the parent lives, and no call has failed late.
  (void)parent.add(empty, {beside});
  size_t count = 0;
  MUST(cuGraphGetNodes(parent.graph, nullptr, &count));
  check(count == 2, "the number of nodes of the parent");
  MUST(cuGraphGetNodes(other.graph, nullptr, &count));
  check(count == 0, "the number of nodes of the other graph");
  MUST(cuCtxSynchronize());
}

// A child graph that allocates memory can only move.
void move_memory() {
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  std::vector<unsigned> seen(kCount);
  Graph parent;
  CUgraph child;
  MUST(cuGraphCreate(&child, 0));
  CUgraphNodeParams allocation = of_type(CU_GRAPH_NODE_TYPE_MEM_ALLOC);
  allocation.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  allocation.alloc.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  allocation.alloc.bytesize = kBytes;
  CUgraphNode at;
  MUST(cuGraphAddNode(&at, child, nullptr, nullptr, 0, &allocation));
  CUgraphNodeParams fill = memset_of(allocation.alloc.dptr, 31);
  MUST(cuGraphAddNode(&at, child, &at, nullptr, 1, &fill));
  CUgraphNodeParams copy = copy_of(seen.data(), allocation.alloc.dptr);
  MUST(cuGraphAddNode(&at, child, &at, nullptr, 1, &copy));
  CUgraphNodeParams release = of_type(CU_GRAPH_NODE_TYPE_MEM_FREE);
  release.free.dptr = allocation.alloc.dptr;
  MUST(cuGraphAddNode(&at, child, &at, nullptr, 1, &release));
  CUgraphNodeParams given = child_of(child, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE);
  const CUresult cloned = cuGraphAddNode(&at, parent.graph, nullptr, nullptr, 0, &given);
  check(cloned != CUDA_SUCCESS, "a clone of a graph that allocates");
  (void)parent.add(child_of(child, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE));
  run(parent.graph, stream);
  std::printf("moved memory: %u\n", seen[kCount - 1]);
  CUgraph clone;
  check(cuGraphClone(&clone, parent.graph) != CUDA_SUCCESS, "a clone of the parent");
  MUST(cuStreamDestroy(stream));
}

}  // namespace

int main(int, char** arguments) {
  end_after(100);
  const Device device(arguments[1]);
  const CUdeviceptr memory = Device::memory(kBytes);
  read_plain_types(memory);
  read_kernel(device, memory);
  read_types_with_graphs(memory);
  read_captured(memory);
  use_functions_of_cuda_11(device, memory);
  use_memory_operations(memory);
  move_graphs(device, memory);
  end_moved_graphs(memory);
  move_memory();
  MUST(cuMemFree(memory));
  std::printf("PASSED\n");
}
