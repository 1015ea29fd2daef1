// Driver API: graph memory. Nodes of graphs allocate and free memory, by calls and by captures. The
// program frees memory that a launch has allocated, and launches again. Addresses of graphs that
// have ended go to other memory.
#include <cstring>
#include <initializer_list>
#include <vector>

#include "driver_test.h"

namespace {

constexpr size_t kBytes = 1 << 20;

const char* name_of(CUresult result) {
  const char* name = "unknown";
  (void)cuGetErrorName(result, &name);
  return name;
}

void print(const char* what, CUresult result) { std::printf("%s: %s\n", what, name_of(result)); }

CUDA_MEM_ALLOC_NODE_PARAMS allocation_of(size_t bytes) {
  CUDA_MEM_ALLOC_NODE_PARAMS made = {};
  made.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  made.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  made.poolProps.location.id = 0;
  made.bytesize = bytes;
  return made;
}

// A graph that is instantiated, and launched in a stream.
struct Graph {
  CUgraph graph;
  CUgraphExec exec = nullptr;
  CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);

  Graph() { MUST(cuGraphCreate(&graph, 0)); }
  explicit Graph(CUgraph captured) : graph(captured) {}
  Graph(const Graph&) = delete;
  ~Graph() {
    if (exec != nullptr) MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
    MUST(cuStreamDestroy(stream));
  }

  CUgraphNode allocate(CUdeviceptr* address, size_t bytes = kBytes) const {
    CUDA_MEM_ALLOC_NODE_PARAMS parameters = allocation_of(bytes);
    CUgraphNode node;
    MUST(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &parameters));
    *address = parameters.dptr;
    return node;
  }
  CUgraphNode fill(CUgraphNode behind, CUdeviceptr address, unsigned value) const {
    CUDA_MEMSET_NODE_PARAMS what = {};
    what.dst = address;
    what.value = value;
    what.elementSize = 4;
    what.width = kBytes / 4;
    what.height = 1;
    CUcontext context;
    MUST(cuCtxGetCurrent(&context));
    CUgraphNode node;
    MUST(cuGraphAddMemsetNode(&node, graph, &behind, 1, &what, context));
    return node;
  }
  CUgraphNode copy(CUgraphNode behind, CUdeviceptr to, CUdeviceptr from) const {
    CUDA_MEMCPY3D what = {};
    what.srcMemoryType = what.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    what.srcDevice = from;
    what.dstDevice = to;
    what.WidthInBytes = kBytes;
    what.Height = what.Depth = 1;
    CUcontext context;
    MUST(cuCtxGetCurrent(&context));
    CUgraphNode node;
    MUST(cuGraphAddMemcpyNode(&node, graph, &behind, 1, &what, context));
    return node;
  }
  CUgraphNode free(CUgraphNode behind, CUdeviceptr address) const {
    CUgraphNode node;
    MUST(cuGraphAddMemFreeNode(&node, graph, &behind, 1, address));
    return node;
  }
  void launch() {
    if (exec == nullptr) MUST(cuGraphInstantiate(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, stream));
  }
  unsigned last_word(CUdeviceptr of) const {
    unsigned value = 0;
    MUST(cuMemcpyDtoHAsync(&value, of + kBytes - 4, 4, stream));
    MUST(cuStreamSynchronize(stream));
    return value;
  }
};

// The memory lives between two nodes.
void use_within_a_graph() {
  const CUdeviceptr result = Device::memory(kBytes);
  Graph graph;
  CUdeviceptr memory;
  const CUgraphNode made = graph.allocate(&memory);
  graph.free(graph.copy(graph.fill(made, memory, 41), result, memory), memory);
  for (int i = 0; i < 3; ++i) {
    MUST(cuMemsetD32Async(result, 0, kBytes / 4, graph.stream));
    graph.launch();
    std::printf("within the graph: %u\n", graph.last_word(result));
  }
  size_t count = 0;
  MUST(cuGraphGetNodes(graph.graph, nullptr, &count));
  std::vector<CUgraphNode> nodes(count);
  MUST(cuGraphGetNodes(graph.graph, nodes.data(), &count));
  for (const CUgraphNode node : nodes) {
    CUgraphNodeType type;
    MUST(cuGraphNodeGetType(node, &type));
    std::printf("node of type %d\n", static_cast<int>(type));
  }
  MUST(cuMemFree(result));
}

// Each launch allocates the memory again, at the same address.
void free_after_each_launch(Graph& graph, CUdeviceptr memory, unsigned value) {
  for (int i = 0; i < 3; ++i) {
    graph.launch();
    std::printf("after the launch: %u\n", graph.last_word(memory));
    MUST(cuMemsetD32Async(memory, value + 1, kBytes / 4, graph.stream));
    std::printf("after a fill: %u\n", graph.last_word(memory));
    print("cuMemFreeAsync", cuMemFreeAsync(memory, graph.stream));
    graph.launch();
    std::printf("after the next launch: %u\n", graph.last_word(memory));
    print("cuMemFree", cuMemFree(memory));
  }
}

void free_outside_the_graph() {
  Graph graph;
  CUdeviceptr memory;
  const CUgraphNode made = graph.allocate(&memory);
  graph.fill(made, memory, 43);
  free_after_each_launch(graph, memory, 43);
}

void free_captured_memory() {
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr result = Device::memory(kBytes);
  CUdeviceptr kept, passing;
  MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  MUST(cuMemAllocAsync(&kept, kBytes, stream));
  MUST(cuMemAllocAsync(&passing, kBytes, stream));
  MUST(cuMemsetD32Async(passing, 47, kBytes / 4, stream));
  MUST(cuMemcpyDtoDAsync(kept, passing, kBytes, stream));
  MUST(cuMemcpyDtoDAsync(result, kept, kBytes, stream));
  MUST(cuMemFreeAsync(passing, stream));
  CUgraph captured;
  MUST(cuStreamEndCapture(stream, &captured));
  Graph graph(captured);
  free_after_each_launch(graph, kept, 47);
  std::printf("copied: %u\n", graph.last_word(result));
  // A captured allocation is such a node.
  size_t count = 0;
  MUST(cuGraphGetNodes(captured, nullptr, &count));
  std::vector<CUgraphNode> nodes(count);
  MUST(cuGraphGetNodes(captured, nodes.data(), &count));
  for (const CUgraphNode node : nodes) {
    CUDA_MEM_ALLOC_NODE_PARAMS read = {};
    const CUresult found = cuGraphMemAllocNodeGetParams(node, &read);
    std::printf("captured: %s, %d\n", name_of(found),
                found == CUDA_SUCCESS && read.bytesize == kBytes &&
                    (read.dptr == kept || read.dptr == passing));
  }
  MUST(cuMemFree(result));
  MUST(cuStreamDestroy(stream));
}

// A free node may be in another graph than the allocation.
void free_in_another_graph() {
  Graph graph, other;
  CUdeviceptr memory;
  const CUgraphNode made = graph.allocate(&memory);
  graph.fill(made, memory, 53);
  CUgraphNode node;
  MUST(cuGraphAddMemFreeNode(&node, other.graph, nullptr, 0, memory));
  CUdeviceptr read = 0;
  MUST(cuGraphMemFreeNodeGetParams(node, &read));
  std::printf("address of the free node: %d\n", read == memory);
  for (int i = 0; i < 2; ++i) {
    graph.launch();
    std::printf("before the other graph: %u\n", graph.last_word(memory));
    other.launch();
    MUST(cuStreamSynchronize(other.stream));
  }
}

void read_parameters() {
  Graph graph;
  CUgraphNode node;
  CUmemAccessDesc access = {};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = 0;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUDA_MEM_ALLOC_NODE_PARAMS given = allocation_of(12345);
  given.accessDescs = &access;
  given.accessDescCount = 1;
  MUST(cuGraphAddMemAllocNode(&node, graph.graph, nullptr, 0, &given));
  CUDA_MEM_ALLOC_NODE_PARAMS read, again;
  std::memset(&read, 1, sizeof read);
  MUST(cuGraphMemAllocNodeGetParams(node, &read));
  MUST(cuGraphMemAllocNodeGetParams(node, &again));
  std::printf("parameters: %d %d %d %zu %zu %d\n", read.poolProps.allocType,
              read.poolProps.location.type, read.poolProps.location.id, read.bytesize,
              read.accessDescCount, read.dptr == given.dptr);
  std::printf("accesses: %d %d %d, the same memory: %d\n", read.accessDescs[0].location.type,
              read.accessDescs[0].location.id, read.accessDescs[0].flags,
              read.accessDescs == again.accessDescs);
}

void print_attributes(const char* when, CUdeviceptr memory) {
  CUdeviceptr base = 0;
  size_t bytes = 0;
  const CUresult found = cuMemGetAddressRange(&base, &bytes, memory + 5);
  std::printf("%s: %s %d %zu\n", when, name_of(found), base == memory, bytes);
  for (const CUpointer_attribute which :
       {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE}) {
    unsigned value = 0;
    const CUresult result = cuPointerGetAttribute(&value, which, memory + 5);
    std::printf("attribute %d: %s %u\n", static_cast<int>(which), name_of(result), value);
  }
  CUpointer_attribute which = CU_POINTER_ATTRIBUTE_RANGE_SIZE;
  void* place = &bytes;
  MUST(cuPointerGetAttributes(1, &which, &place, memory + 5));
  std::printf("size: %zu\n", bytes);
}

// The program may use memory that a launch has allocated, and free it, when its graph has ended.
void outlive_the_graph() {
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  CUdeviceptr memory;
  {
    Graph graph;
    const CUgraphNode made = graph.allocate(&memory);
    graph.fill(made, memory, 67);
    graph.launch();
    MUST(cuStreamSynchronize(graph.stream));
  }
  unsigned value = 0;
  MUST(cuMemcpyDtoHAsync(&value, memory + kBytes - 4, 4, stream));
  MUST(cuStreamSynchronize(stream));
  std::printf("after its graph: %u\n", value);
  print("free", cuMemFree(memory));
  print("free again", cuMemFree(memory));
  MUST(cuStreamDestroy(stream));
}

// A host function holds the stream until the calls behind it have returned.
void pass_a_host_function(const Device& device) {
  Graph graph;
  CUdeviceptr memory;
  graph.allocate(&memory);
  unsigned* const seen = Device::pinned(64);
  const CUdeviceptr other = Device::memory(kBytes);
  graph.launch();
  Gate gate;
  gate.stand_in(graph.stream);
  gate.await_begin();
  MUST(cuMemsetD32Async(memory, 73, kBytes / 4, graph.stream));
  MUST(cuMemsetD2D32Async(memory, 64, 79, 4, 2, graph.stream));
  MUST(cuMemcpyDtoDAsync(other, memory, kBytes, graph.stream));
  MUST(cuMemcpyDtoHAsync(seen, memory + 64, 4, graph.stream));
  MUST(cuMemcpyDtoHAsync(seen + 1, other + kBytes - 4, 4, graph.stream));
  device.launch_fill(graph.stream, memory, 16, 5);
  print("free behind a host function", cuMemFreeAsync(memory, graph.stream));
  unsigned type = 0;
  MUST(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
  gate.let_go();
  MUST(cuStreamSynchronize(graph.stream));
  std::printf("behind a host function: %u %u, type %u\n", seen[0], seen[1], type);
  MUST(cuMemFree(other));
  MUST(cuMemFreeHost(seen));
}

// A host node waits for this thread, which first copies to memory of another graph. Copies from
// pageable memory would wait for the stream (cuda.h, "API synchronization behavior").
void copy_behind_a_host_node() {
  Graph graph, waits;
  CUdeviceptr memory;
  const CUgraphNode made = graph.allocate(&memory);
  graph.fill(made, memory, 1);
  graph.launch();
  unsigned* const pinned = Device::pinned(64);
  for (unsigned i = 0; i < 8; ++i) pinned[i] = 89 + i;
  Gate gate;
  gate.stand_in(waits.graph);
  MUST(cuGraphInstantiateWithFlags(&waits.exec, waits.graph, 0));
  MUST(cuGraphLaunch(waits.exec, graph.stream));
  gate.await_begin();
  MUST(cuMemcpyHtoDAsync(memory, pinned, 4, graph.stream));
  CUDA_MEMCPY2D box = {};
  box.srcMemoryType = CU_MEMORYTYPE_HOST;
  box.srcHost = pinned + 1;
  box.srcPitch = 8;
  box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.dstDevice = memory + 4;
  box.dstPitch = 64;
  box.WidthInBytes = 4;
  box.Height = 2;
  MUST(cuMemcpy2DAsync(&box, graph.stream));
  gate.let_go();
  MUST(cuStreamSynchronize(graph.stream));
  unsigned seen[18];
  MUST(cuMemcpyDtoH(seen, memory, sizeof seen));
  std::printf("behind a host node: %u %u %u\n", seen[0], seen[1], seen[17]);
  MUST(cuMemFreeAsync(memory, graph.stream));
  MUST(cuMemFreeHost(pinned));
}

// A question about the memory does not take away the failure of an earlier call, which is known
// later when the call is forwarded.
void tell_an_earlier_failure() {
  Graph graph;
  CUdeviceptr memory;
  const CUgraphNode made = graph.allocate(&memory);
  graph.fill(made, memory, 1);
  graph.launch();
  Gate gate;
  gate.stand_in(graph.stream);
  gate.await_begin();
  bool told = cuMemsetD8Async(memory, 1, 64 * kBytes, graph.stream) != CUDA_SUCCESS;
  gate.let_go();
  unsigned type = 0;
  for (int i = 0; i < 1000 && !told; ++i) {
    told = cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory) != CUDA_SUCCESS;
  }
  told |= cuStreamSynchronize(graph.stream) != CUDA_SUCCESS;
  std::printf("fill beyond the memory: %s\n", told ? "refused" : "no failure was told");
  EXPECT(told);
  print("free behind it", cuMemFreeAsync(memory, graph.stream));
}

// Nothing of it runs. Nodes of a graph that allocates memory cannot be destroyed.
void refuse_a_copy_beyond_the_memory() {
  Graph graph;
  CUdeviceptr memory;
  const CUgraphNode made = graph.allocate(&memory);
  const std::vector<unsigned char> source(2 * kBytes, 7);
  CUDA_MEMCPY3D what = {};
  what.srcMemoryType = CU_MEMORYTYPE_HOST;
  what.srcHost = source.data();
  what.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  what.dstDevice = memory;
  what.WidthInBytes = source.size();
  what.Height = what.Depth = 1;
  CUcontext context;
  MUST(cuCtxGetCurrent(&context));
  CUgraphNode node = nullptr;
  print("copy beyond the memory",
        cuGraphAddMemcpyNode(&node, graph.graph, &made, 1, &what, context));
  graph.fill(made, memory, 83);
  graph.launch();
  unsigned seen = 0;
  MUST(cuStreamSynchronize(graph.stream));
  MUST(cuMemcpyDtoH(&seen, memory + kBytes - 4, 4));
  std::printf("beside the refused copy: %u\n", seen);
  MUST(cuMemFreeAsync(memory, graph.stream));
}

// The driver may give the addresses to other memory, of another size.
void reuse_addresses() {
  CUdeviceptr memory;
  std::vector<CUdeviceptr> earlier;
  {
    Graph graph;
    const CUgraphNode made = graph.allocate(&memory);
    earlier.push_back(memory);
    graph.fill(made, memory, 59);
    print_attributes("before a launch", memory);
    graph.launch();
    print_attributes("after a launch", memory);
    MUST(cuMemFreeAsync(memory, graph.stream));
    MUST(cuStreamSynchronize(graph.stream));
  }
  print_attributes("after the graph", memory);
  // No call asks about this one before other memory gets its addresses.
  for (int i = 0; i < 4; ++i) {
    Graph graph;
    const CUgraphNode made = graph.allocate(&memory);
    earlier.push_back(memory);
    graph.fill(made, memory, 59);
    graph.launch();
    MUST(cuMemFreeAsync(memory, graph.stream));
    MUST(cuStreamSynchronize(graph.stream));
  }
  MUST(cuCtxSynchronize());  // The ends of those graphs included.
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  std::vector<CUdeviceptr> others;
  size_t right = 0;
  bool reused = false;
  // The device chooses the addresses.
  for (int round = 0; round < 16 && !reused; ++round) {
    for (const size_t bytes : {kBytes / 4, kBytes * 3, kBytes, kBytes / 2}) {
      for (int i = 0; i < 8; ++i) {
        CUdeviceptr base = 0;
        size_t seen = 0;
        MUST(cuMemAllocAsync(&others.emplace_back(), bytes, stream));
        MUST(cuMemsetD8Async(others.back(), 1, bytes, stream));
        MUST(cuMemGetAddressRange(&base, &seen, others.back() + bytes - 1));
        right += base == others.back() && seen == bytes;
        for (const CUdeviceptr each : earlier) {
          reused |= each < others.back() + bytes && others.back() < each + kBytes;
        }
      }
    }
  }
  std::printf("allocations without their own range: %zu\n", others.size() - right);
  EXPECT(reused);  // Otherwise nothing was shown.
  for (const CUdeviceptr other : others) MUST(cuMemFreeAsync(other, stream));
  MUST(cuStreamSynchronize(stream));
  print("freed twice", cuMemFreeAsync(others.back(), stream));
  MUST(cuStreamDestroy(stream));
}

void pass_wrong_arguments() {
  Graph graph, other;
  CUgraphNode node = nullptr, empty;
  MUST(cuGraphAddEmptyNode(&empty, other.graph, nullptr, 0));
  CUDA_MEM_ALLOC_NODE_PARAMS wanted = allocation_of(kBytes);
  const auto add = [&](const char* what, const CUDA_MEM_ALLOC_NODE_PARAMS& parameters) {
    CUDA_MEM_ALLOC_NODE_PARAMS given = parameters;
    print(what, cuGraphAddMemAllocNode(&node, graph.graph, nullptr, 0, &given));
  };
  print("no output", cuGraphAddMemAllocNode(nullptr, graph.graph, nullptr, 0, &wanted));
  print("no parameters", cuGraphAddMemAllocNode(&node, graph.graph, nullptr, 0, nullptr));
  print("no graph", cuGraphAddMemAllocNode(&node, nullptr, nullptr, 0, &wanted));
  print("no list", cuGraphAddMemAllocNode(&node, graph.graph, nullptr, 1, &wanted));
  print("node of another graph", cuGraphAddMemAllocNode(&node, graph.graph, &empty, 1, &wanted));
  add("no bytes", allocation_of(0));
  add("too many bytes", allocation_of(size_t{1} << 50));
  CUDA_MEM_ALLOC_NODE_PARAMS wrong = wanted;
  wrong.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_INVALID;
  add("no type", wrong);
  wrong = wanted;
  wrong.poolProps.location.id = 4711;
  add("no such device", wrong);
  wrong = wanted;
  wrong.poolProps.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  add("a handle to export", wrong);
  wrong = wanted;
  wrong.accessDescCount = 1;
  add("no accesses", wrong);
  const std::vector<CUmemAccessDesc> many(5000);
  wrong.accessDescs = many.data();
  wrong.accessDescCount = many.size();
  add("more accesses than devices", wrong);
  print("parameters of another node", cuGraphMemAllocNodeGetParams(empty, &wanted));
  print("parameters without output", cuGraphMemAllocNodeGetParams(empty, nullptr));
  const CUdeviceptr ordinary = Device::memory(kBytes);
  print("free node of ordinary memory",
        cuGraphAddMemFreeNode(&node, graph.graph, nullptr, 0, ordinary));
  MUST(cuMemFree(ordinary));
  // The graph still works.
  CUdeviceptr memory;
  const CUgraphNode made = graph.allocate(&memory);
  graph.fill(made, memory, 61);
  graph.launch();
  std::printf("after wrong calls: %u\n", graph.last_word(memory));
  MUST(cuMemFree(memory));
}

// Such a graph cannot be cloned or be a child, and keeps its nodes.
void change_the_graph() {
  Graph graph, parent;
  CUdeviceptr memory;
  const CUgraphNode made = graph.allocate(&memory);
  const CUgraphNode filled = graph.fill(made, memory, 71);
  CUgraph clone = nullptr;
  CUgraphNode child = nullptr;
  print("clone", cuGraphClone(&clone, graph.graph));
  print("child", cuGraphAddChildGraphNode(&child, parent.graph, nullptr, 0, graph.graph));
  print("end of a node", cuGraphDestroyNode(filled));
  std::printf("outputs: %d %d\n", clone == nullptr, child == nullptr);
  graph.launch();
  std::printf("after the changes: %u\n", graph.last_word(memory));
  MUST(cuMemFree(memory));
  // Other graphs can be changed.
  CUgraphNode empty;
  MUST(cuGraphAddEmptyNode(&empty, parent.graph, nullptr, 0));
  MUST(cuGraphClone(&clone, parent.graph));
  MUST(cuGraphAddChildGraphNode(&child, clone, nullptr, 0, parent.graph));
  MUST(cuGraphDestroyNode(child));
  print("end of a node, twice", cuGraphDestroyNode(child));
  MUST(cuGraphDestroy(clone));
}

// A capture frees memory of graphs alone. Ordinary memory stays.
void free_ordinary_memory_in_a_capture() {
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  CUdeviceptr memory;
  MUST(cuMemAllocAsync(&memory, kBytes, stream));
  MUST(cuStreamSynchronize(stream));
  MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  print("captured free of ordinary memory", cuMemFreeAsync(memory, stream));
  CUgraph captured = nullptr;
  if (cuStreamEndCapture(stream, &captured) == CUDA_SUCCESS) MUST(cuGraphDestroy(captured));
  MUST(cuMemsetD8Async(memory, 1, kBytes, stream));
  print("free", cuMemFreeAsync(memory, stream));
  MUST(cuStreamSynchronize(stream));
  MUST(cuStreamDestroy(stream));
}

}  // namespace

int main(int, char** argv) {
  end_after(60);
  const Device device(argv[1]);
  use_within_a_graph();
  free_outside_the_graph();
  free_captured_memory();
  free_in_another_graph();
  read_parameters();
  outlive_the_graph();
  pass_a_host_function(device);
  copy_behind_a_host_node();
  tell_an_earlier_failure();
  refuse_a_copy_beyond_the_memory();
  reuse_addresses();
  pass_wrong_arguments();
  change_the_graph();
  free_ordinary_memory_in_a_capture();
  std::puts("PASSED");
  return 0;
}
