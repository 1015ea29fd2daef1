// Driver API: graphs as XLA builds them, with cuGraphAddNode for every type of node. The parameters
// are set and read back, edges carry data, and a graph keeps an object of the program.
#include <atomic>
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
  CUgraphExec instantiate() const {
    CUgraphExec exec;
    MUST(cuGraphInstantiate(&exec, graph, 0));
    return exec;
  }
};

// The kernel `fill` with its arguments, which a node copies.
struct Fill {
  CUdeviceptr to;
  unsigned count = kCount, value;
  void* arguments[3] = {&to, &count, &value};
  CUgraphNodeParams parameters = {};

  Fill(const Device& device, CUdeviceptr where, unsigned what) : to(where), value(what) {
    parameters.type = CU_GRAPH_NODE_TYPE_KERNEL;
    parameters.kernel.func = device.fill;
    parameters.kernel.gridDimX = parameters.kernel.gridDimY = parameters.kernel.gridDimZ = 1;
    parameters.kernel.blockDimX = kCount;
    parameters.kernel.blockDimY = parameters.kernel.blockDimZ = 1;
    parameters.kernel.kernelParams = arguments;
  }
  Fill(const Fill&) = delete;
};

CUgraphNodeParams copy_of(void* to, CUdeviceptr from) {
  CUgraphNodeParams made = {};
  made.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  CUDA_MEMCPY3D& copy = made.memcpy.copyParams;
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = to;
  copy.WidthInBytes = kBytes;
  copy.Height = copy.Depth = 1;
  MUST(cuCtxGetCurrent(&made.memcpy.copyCtx));
  return made;
}

CUgraphNodeParams memset_of(CUdeviceptr to, unsigned value) {
  CUgraphNodeParams made = {};
  made.type = CU_GRAPH_NODE_TYPE_MEMSET;
  made.memset.dst = to;
  made.memset.value = value;
  made.memset.elementSize = 4;
  made.memset.width = kCount;
  made.memset.height = 1;
  MUST(cuCtxGetCurrent(&made.memset.ctx));
  return made;
}

CUgraphNodeParams host_of(CUhostFn function, void* user) {
  CUgraphNodeParams made = {};
  made.type = CU_GRAPH_NODE_TYPE_HOST;
  made.host.fn = function;
  made.host.userData = user;
  return made;
}

void launch(CUgraphExec exec, CUstream stream) {
  MUST(cuGraphLaunch(exec, stream));
  MUST(cuStreamSynchronize(stream));
}

void CUDA_CB count_up(void* user) { ++*static_cast<std::atomic<int>*>(user); }

unsigned last_of(const std::vector<unsigned>& values) { return values[kCount - 1]; }

// One node of each type, in a line.
void run_every_type(const Device& device) {
  const CUdeviceptr memory = Device::memory(kBytes);
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUevent event = Device::event();
  std::vector<unsigned> seen(kCount);
  std::atomic<int> calls{0};
  Graph graph, child;
  const Fill fill(device, memory, 7);
  (void)child.add(memset_of(memory, 3));

  CUgraphNodeParams empty = {}, nested = {}, record = {}, wait = {}, allocation = {}, release = {};
  empty.type = CU_GRAPH_NODE_TYPE_EMPTY;
  nested.type = CU_GRAPH_NODE_TYPE_GRAPH;
  nested.graph.graph = child.graph;
  record.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
  record.eventRecord.event = event;
  wait.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT;
  wait.eventWait.event = event;
  allocation.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  allocation.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  allocation.alloc.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  allocation.alloc.bytesize = kBytes;

  CUgraphNode at = graph.add(empty);
  at = graph.add(nested, {at});
  at = graph.add(wait, {at});
  at = graph.add(fill.parameters, {at});
  at = graph.add(record, {at});
  at = graph.add(host_of(&count_up, &calls), {at});
  at = graph.add(copy_of(seen.data(), memory), {at});
  MUST(cuGraphAddNode(&at, graph.graph, &at, nullptr, 1, &allocation));
  if (allocation.alloc.dptr == 0) cuda_check::fail(__FILE__, __LINE__, "no address", "");
  at = graph.add(memset_of(allocation.alloc.dptr, 5), {at});
  release.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
  release.free.dptr = allocation.alloc.dptr;
  (void)graph.add(release, {at});

  const CUgraphExec exec = graph.instantiate();
  for (int i = 0; i < 3; ++i) launch(exec, stream);
  std::printf("every type: %u, %d calls, event %d\n", last_of(seen), calls.load(),
              static_cast<int>(cuEventQuery(event)));
  MUST(cuGraphExecDestroy(exec));
  MUST(cuStreamDestroy(stream));
  MUST(cuMemFree(memory));
}

void set_and_read(const Device& device) {
  const CUdeviceptr memory = Device::memory(kBytes);
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  std::vector<unsigned> seen(kCount), other(kCount);
  std::atomic<int> calls{0}, other_calls{0};
  Graph graph;
  Fill first(device, memory, 1), second(device, memory, 2), third(device, memory, 3);
  const CUgraphNode kernel = graph.add(first.parameters);
  const CUgraphNode copy = graph.add(copy_of(seen.data(), memory), {kernel});
  const CUgraphNode host = graph.add(host_of(&count_up, &calls), {copy});
  const CUgraphNode fill = graph.add(memset_of(memory, 9), {copy});

  CUDA_KERNEL_NODE_PARAMS read_kernel = {};
  MUST(cuGraphKernelNodeGetParams(kernel, &read_kernel));
  if (read_kernel.kernelParams == nullptr) cuda_check::fail(__FILE__, __LINE__, "no values", "");
  std::printf("kernel: %d, grid %u, block %u, value %u, address %d\n",
              read_kernel.func == device.fill, read_kernel.gridDimX, read_kernel.blockDimX,
              *static_cast<unsigned*>(read_kernel.kernelParams[2]),
              *static_cast<CUdeviceptr*>(read_kernel.kernelParams[0]) == memory);
  // As llama.cpp does: what was read is changed and set again.
  unsigned value = 4;
  void* changed[3] = {read_kernel.kernelParams[0], read_kernel.kernelParams[1], &value};
  read_kernel.kernelParams = changed;
  MUST(cuGraphKernelNodeSetParams(kernel, &read_kernel));
  CUDA_MEMCPY3D read_copy = {};
  MUST(cuGraphMemcpyNodeGetParams(copy, &read_copy));
  std::printf("copy: %d %d, %zu bytes\n", read_copy.dstHost == seen.data(),
              read_copy.srcDevice == memory, read_copy.WidthInBytes);
  CUDA_HOST_NODE_PARAMS read_host = {};
  MUST(cuGraphHostNodeGetParams(host, &read_host));
  std::printf("host: %d %d\n", read_host.fn == &count_up, read_host.userData == &calls);
  CUDA_MEMSET_NODE_PARAMS read_fill = {};
  MUST(cuGraphMemsetNodeGetParams(fill, &read_fill));
  std::printf("memset: %d, value %u\n", read_fill.dst == memory, read_fill.value);

  const CUgraphExec before = graph.instantiate();
  launch(before, stream);
  std::printf("set kernel: %u, %d calls\n", last_of(seen), calls.load());

  // The graph, and then an executable of it.
  MUST(cuGraphNodeSetParams(kernel, &second.parameters));
  CUgraphNodeParams host_again = host_of(&count_up, &other_calls);
  MUST(cuGraphNodeSetParams(host, &host_again));
  const CUgraphExec exec = graph.instantiate();
  launch(exec, stream);
  std::printf("set in the graph: %u, %d other calls\n", last_of(seen), other_calls.load());
  MUST(cuGraphExecNodeSetParams(exec, kernel, &third.parameters));
  CUgraphNodeParams copy_again = copy_of(other.data(), memory), fill_again = memset_of(memory, 8);
  MUST(cuGraphExecNodeSetParams(exec, copy, &copy_again));
  MUST(cuGraphExecNodeSetParams(exec, fill, &fill_again));
  launch(exec, stream);
  std::printf("set in the executable: %u, %u before, %u after\n", last_of(other), last_of(seen),
              Device::read(memory));
  expect(cuGraphNodeSetParams(copy, &second.parameters), CUDA_ERROR_INVALID_VALUE,
         "a kernel's parameters for a copy");

  CUkernelNodeAttrValue priority = {};
  priority.priority = -1;
  MUST(cuGraphKernelNodeSetAttribute(kernel, CU_LAUNCH_ATTRIBUTE_PRIORITY, &priority));
  MUST(cuGraphKernelNodeGetAttribute(kernel, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &priority));
  std::printf("cooperative: %d\n", priority.cooperative);
  // Events belong to launches alone, and a handle for kernels is not made here.
  expect(cuGraphKernelNodeSetAttribute(kernel, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, &priority),
         CUDA_ERROR_INVALID_VALUE, "an event of a kernel node");
  expect(
      cuGraphKernelNodeGetAttribute(kernel, CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT, &priority),
      CUDA_ERROR_INVALID_VALUE, "the event of a kernel node");
  expect(cuGraphKernelNodeSetAttribute(kernel, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE,
                                       &priority),
         CUDA_ERROR_NOT_SUPPORTED, "a node that kernels change");
  MUST(cuGraphExecDestroy(exec));
  MUST(cuGraphExecDestroy(before));
  MUST(cuStreamDestroy(stream));
  MUST(cuMemFree(memory));
}

void use_edge_data(const Device& device) {
  const CUdeviceptr memory = Device::memory(kBytes);
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  Graph graph;
  Fill one(device, memory, 1), two(device, memory, 2);
  const CUgraphNode first = graph.add(one.parameters);
  CUgraphEdgeData early = {};
  early.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  early.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
  CUgraphNode second;
  MUST(cuGraphAddNode(&second, graph.graph, &first, &early, 1, &two.parameters));
  CUgraphNode from = nullptr, to = nullptr;
  size_t count = 1;
  expect(cuGraphGetEdges(graph.graph, &from, &to, nullptr, &count), CUDA_ERROR_LOSSY_QUERY,
         "edges without their data");
  CUgraphEdgeData read = {};
  count = 1;
  MUST(cuGraphGetEdges(graph.graph, &from, &to, &read, &count));
  std::printf("edge: %zu, %d %d, type %d, port %d\n", count, from == first, to == second, read.type,
              read.from_port);
  count = 1;
  MUST(cuGraphNodeGetDependencies(second, &from, &read, &count));
  std::printf("dependency: %zu, %d, type %d\n", count, from == first, read.type);
  const CUgraphExec exec = graph.instantiate();
  launch(exec, stream);
  std::printf("programmatic: %u\n", Device::read(memory));
  MUST(cuGraphExecDestroy(exec));
  // Only the edge with that data is an edge of the graph.
  expect(cuGraphRemoveDependencies(graph.graph, &first, &second, nullptr, 1),
         CUDA_ERROR_INVALID_VALUE, "an edge with other data");
  MUST(cuGraphRemoveDependencies(graph.graph, &first, &second, &early, 1));
  MUST(cuGraphGetEdges(graph.graph, nullptr, nullptr, nullptr, &count));
  std::printf("edges left: %zu\n", count);
  // Programmatic edges join kernels only. A node with a refused edge is no node of the graph.
  CUgraphNodeParams fill = memset_of(memory, 3);
  expect(cuGraphAddNode(&second, graph.graph, &first, &early, 1, &fill), CUDA_ERROR_INVALID_VALUE,
         "a programmatic edge to a memset");
  MUST(cuGraphGetNodes(graph.graph, nullptr, &count));
  std::printf("nodes: %zu\n", count);
  MUST(cuStreamDestroy(stream));
  MUST(cuMemFree(memory));
}

// The destructor runs when the last reference has ended, on another thread.
struct Object {
  std::mutex mutex;
  std::condition_variable changed;
  int ends = 0;  // Guarded by mutex.

  static void CUDA_CB end(void* user) {
    auto* own = static_cast<Object*>(user);
    const std::lock_guard<std::mutex> lock(own->mutex);
    ++own->ends;
    own->changed.notify_all();
  }
  int ends_now() {
    const std::lock_guard<std::mutex> lock(mutex);
    return ends;
  }
  void await_end() {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [this] { return ends != 0; });
  }
  CUuserObject make(unsigned references) {
    CUuserObject made;
    MUST(cuUserObjectCreate(&made, this, &Object::end, references,
                            CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    return made;
  }
};

void keep_objects(const Device& device) {
  const CUdeviceptr memory = Device::memory(kBytes);
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  Object alone, kept;
  const CUuserObject first = alone.make(2);
  MUST(cuUserObjectRetain(first, 1));
  MUST(cuUserObjectRelease(first, 2));
  MUST(cuCtxSynchronize());
  std::printf("a reference is left: %d ends\n", alone.ends_now());
  MUST(cuUserObjectRelease(first, 1));
  alone.await_end();

  CUgraphExec exec = nullptr;
  Gate gate;
  {
    Graph graph;
    const Fill fill(device, memory, 6);
    gate.stand_in(graph.graph);
    (void)graph.add(fill.parameters);
    const CUuserObject object = kept.make(1);
    MUST(cuGraphRetainUserObject(graph.graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    exec = graph.instantiate();
  }
  MUST(cuGraphLaunch(exec, stream));
  gate.await_begin();
  MUST(cuGraphExecDestroy(exec));
  std::printf("while a launch runs: %d ends\n", kept.ends_now());
  gate.let_go();
  MUST(cuStreamSynchronize(stream));
  kept.await_end();
  std::printf("after it: %d ends, %u\n", kept.ends_now(), Device::read(memory));

  CUuserObject none;
  expect(cuUserObjectCreate(&none, nullptr, nullptr, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
         CUDA_ERROR_INVALID_VALUE, "no destructor");
  expect(cuUserObjectCreate(&none, nullptr, &Object::end, 1, 0), CUDA_ERROR_INVALID_VALUE,
         "no flags");
  expect(cuUserObjectRelease(nullptr, 1), CUDA_ERROR_INVALID_VALUE, "no object");
  MUST(cuStreamDestroy(stream));
  MUST(cuMemFree(memory));
}

void instantiate_with_parameters() {
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr memory = Device::memory(kBytes);
  Graph graph;
  const CUgraphNode first = graph.add(memset_of(memory, 1));
  const CUgraphNode second = graph.add(memset_of(memory, 2), {first});
  CUDA_GRAPH_INSTANTIATE_PARAMS parameters = {};
  parameters.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
  parameters.hUploadStream = stream;
  CUgraphExec exec;
  MUST(cuGraphInstantiateWithParams(&exec, graph.graph, &parameters));
  cuuint64_t flags = 99;
  MUST(cuGraphExecGetFlags(exec, &flags));
  launch(exec, stream);
  std::printf("by parameters: result %d, flags %d, %u\n", static_cast<int>(parameters.result_out),
              static_cast<int>(flags), Device::read(memory));
  Graph other;
  const CUgraphNode single = other.add(memset_of(memory, 1));
  CUgraphExecUpdateResultInfo info = {};
  expect(cuGraphExecUpdate(exec, other.graph, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
         "an update with fewer nodes");
  std::printf("update: %d\n", static_cast<int>(info.result));
  CUgraphNodeParams empty = {};
  empty.type = CU_GRAPH_NODE_TYPE_EMPTY;
  const CUgraphNode odd = other.add(empty, {single});
  expect(cuGraphExecUpdate(exec, other.graph, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
         "an update with another type");
  std::printf("update: %d, node %d\n", static_cast<int>(info.result), info.errorNode == odd);
  MUST(cuGraphExecDestroy(exec));
  MUST(cuGraphAddDependencies(graph.graph, &second, &first, nullptr, 1));
  expect(cuGraphInstantiateWithParams(&exec, graph.graph, &parameters), CUDA_ERROR_INVALID_VALUE,
         "a graph with a cycle");
  std::printf("a cycle: result %d, node %d\n", static_cast<int>(parameters.result_out),
              parameters.hErrNode_out == first || parameters.hErrNode_out == second);
  MUST(cuStreamDestroy(stream));
  MUST(cuMemFree(memory));
}

void print_dot(const Device& device) {
  const CUdeviceptr memory = Device::memory(kBytes);
  Graph graph;
  const Fill fill(device, memory, 1);
  const CUgraphNode first = graph.add(fill.parameters);
  const CUgraphNode second = graph.add(memset_of(memory, 2), {first});
  std::vector<unsigned> seen(kCount);
  (void)graph.add(copy_of(seen.data(), memory), {first, second});
  char path[] = "graph-dot-XXXXXX";
  const int made = mkstemp(path);
  if (made < 0) cuda_check::fail(__FILE__, __LINE__, "no file", "");
  close(made);
  MUST(cuGraphDebugDotPrint(graph.graph, path, 0));
  std::FILE* const file = std::fopen(path, "r");
  char line[200];
  while (std::fgets(line, sizeof line, file) != nullptr) std::printf("dot: %s", line);
  (void)std::fclose(file);
  (void)unlink(path);
  expect(cuGraphDebugDotPrint(graph.graph, "/no/such/folder/file", 0), CUDA_ERROR_OPERATING_SYSTEM,
         "a file that cannot be made");
  expect(cuGraphDebugDotPrint(graph.graph, nullptr, 0), CUDA_ERROR_INVALID_VALUE, "no path");
  MUST(cuMemFree(memory));
}

void refuse() {
  Graph graph;
  CUgraphNode node = nullptr;
  CUgraphNodeParams parameters = {};
  parameters.type = static_cast<CUgraphNodeType>(99);
  expect(cuGraphAddNode(&node, graph.graph, nullptr, nullptr, 0, &parameters),
         CUDA_ERROR_INVALID_VALUE, "an unknown type");
  parameters.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT;
  expect(cuGraphAddNode(&node, graph.graph, nullptr, nullptr, 0, &parameters),
         CUDA_ERROR_NOT_SUPPORTED, "an external semaphore");
  parameters.type = CU_GRAPH_NODE_TYPE_EMPTY;
  expect(cuGraphAddNode(&node, graph.graph, nullptr, nullptr, 1, &parameters),
         CUDA_ERROR_INVALID_VALUE, "no list of dependencies");
  expect(cuGraphAddNode(&node, graph.graph, nullptr, nullptr, 0, nullptr), CUDA_ERROR_INVALID_VALUE,
         "no parameters");
  size_t count = 99;
  MUST(cuGraphGetNodes(graph.graph, nullptr, &count));
  std::printf("refused: %zu nodes\n", count);
}

}  // namespace

int main(int, char** arguments) {
  end_after(100);
  const Device device(arguments[1]);
  run_every_type(device);
  set_and_read(device);
  use_edge_data(device);
  keep_objects(device);
  instantiate_with_parameters();
  print_dot(device);
  refuse();
  std::printf("PASSED\n");
}
