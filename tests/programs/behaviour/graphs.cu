// Graphs that use the program's memory: host nodes and copies, added, captured, changed, cloned,
// updated. Only the right order within the graph gives the expected values.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <vector>

#include "tests/support/cuda.h"

__global__ void add(int* values, int count, int what) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] += what;
}

constexpr int kCount = 100'000;  // More than one record can carry.
constexpr size_t kBytes = kCount * sizeof(int);

struct Host {
  int* source;
  int* result;
  bool pinned = true;
  int runs = 0;
  int seen = 0;
};

// Observes the graph's result, and writes the graph's next input. The input is pinned, because
// NVIDIA's driver reads pageable memory when the graph is launched (seen on an H100).
void step(void* user) {
  auto* host = static_cast<Host*>(user);
  ++host->runs;
  host->seen = host->result[kCount - 1];
  for (int i = 0; host->pinned && i < kCount; ++i) host->source[i] = host->result[i] * 2;
}
void count(void* user) { ++static_cast<Host*>(user)->runs; }

struct World {
  int* device = nullptr;
  Host host;
  std::vector<int> pageable[2];
  cudaStream_t stream;
  explicit World(bool pinned) {
    MUST(cudaMalloc(&device, kBytes));
    MUST(cudaStreamCreate(&stream));
    int** const places[] = {&host.source, &host.result};
    host.pinned = pinned;
    for (int i = 0; i < 2; ++i) {
      if (pinned) {
        MUST(cudaMallocHost(places[i], kBytes));
      } else {
        pageable[i].resize(kCount);
        *places[i] = pageable[i].data();
      }
    }
  }
  void fill(int value) {
    for (int i = 0; i < kCount; ++i) host.source[i] = value, host.result[i] = -1;
    host.runs = host.seen = 0;
  }
};

static void kernel(const World& world, int what) {
  add<<<(kCount + 255) / 256, 256, 0, world.stream>>>(world.device, kCount, what);
}

// in, +1, out, the function doubles, in, +1, out: the second copy in reads the function's output.
static cudaGraph_t capture(World& world) {
  cudaGraph_t graph;
  MUST(cudaStreamBeginCapture(world.stream, cudaStreamCaptureModeThreadLocal));
  for (int round = 0; round < 2; ++round) {
    MUST(cudaMemcpyAsync(world.device, world.host.source, kBytes, cudaMemcpyHostToDevice,
                         world.stream));
    kernel(world, 1);
    MUST(cudaMemcpyAsync(world.host.result, world.device, kBytes, cudaMemcpyDefault, world.stream));
    if (round == 0) MUST(cudaLaunchHostFunc(world.stream, step, &world.host));
  }
  MUST(cudaStreamEndCapture(world.stream, &graph));
  return graph;
}

static void captured(bool pinned) {
  World world(pinned);
  world.fill(10);
  cudaGraph_t graph = capture(world);
  EXPECT(world.host.runs == 0 && world.host.result[0] == -1);
  size_t nodes = 0, edges = 0, roots = 0;
  MUST(cudaGraphGetNodes(graph, nullptr, &nodes));
  MUST(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
  MUST(cudaGraphGetRootNodes(graph, nullptr, &roots));
  EXPECT(nodes == 7 && edges == 6 && roots == 1);
  cudaGraphExec_t exec;
  MUST(cudaGraphInstantiate(&exec, graph, 0));
  MUST(cudaGraphDestroy(graph));  // The executable keeps what it needs.
  int source = 10;
  for (int launch = 0; launch < 4; ++launch) {
    MUST(cudaGraphLaunch(exec, world.stream));
    MUST(cudaStreamSynchronize(world.stream));
    const int first = source + 1;
    if (pinned) source = first * 2;  // The function's output.
    EXPECT(world.host.runs == launch + 1 && world.host.seen == first);
    EXPECT(world.host.result[0] == source + 1 && world.host.result[kCount - 1] == source + 1);
  }
  // Launches without a wait in between. The event reports the bytes of the last one.
  world.fill(1);
  cudaEvent_t event;
  MUST(cudaEventCreate(&event));
  for (int launch = 0; launch < 3; ++launch) MUST(cudaGraphLaunch(exec, world.stream));
  MUST(cudaEventRecord(event, world.stream));
  MUST(cudaEventSynchronize(event));
  // 1 -> 4 -> 10 -> 22: each launch leaves (source + 1) * 2 in pinned memory.
  EXPECT(world.host.runs == 3 && world.host.seen == (pinned ? 11 : 2));
  EXPECT(world.host.result[0] == (pinned ? 23 : 2));
  MUST(cudaGraphExecDestroy(exec));
}

// Two streams, one graph: the side stream's copy out waits for the main stream's kernel. It belongs
// to the graph although its stream is destroyed before the capture ends.
static void forked() {
  World world(true);
  world.fill(5);
  cudaStream_t side;
  cudaEvent_t there, back;
  MUST(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
  MUST(cudaEventCreateWithFlags(&there, cudaEventDisableTiming));
  MUST(cudaEventCreateWithFlags(&back, cudaEventDisableTiming));
  int* other = nullptr;
  MUST(cudaMalloc(&other, kBytes));
  cudaGraph_t graph;
  MUST(cudaStreamBeginCapture(world.stream, cudaStreamCaptureModeGlobal));
  MUST(cudaMemcpyAsync(world.device, world.host.source, kBytes, cudaMemcpyHostToDevice,
                       world.stream));
  kernel(world, 3);
  MUST(cudaEventRecord(there, world.stream));
  MUST(cudaStreamWaitEvent(side, there));
  MUST(cudaMemcpyAsync(other, world.device, kBytes, cudaMemcpyDeviceToDevice, side));
  add<<<(kCount + 255) / 256, 256, 0, side>>>(other, kCount, 100);
  MUST(cudaMemcpyAsync(world.host.result, other, kBytes, cudaMemcpyDeviceToHost, side));
  MUST(cudaLaunchHostFunc(side, count, &world.host));
  MUST(cudaEventRecord(back, side));
  MUST(cudaStreamWaitEvent(world.stream, back));
  MUST(cudaStreamDestroy(side));
  MUST(cudaMemsetAsync(world.device, 0, kBytes, world.stream));
  MUST(cudaStreamEndCapture(world.stream, &graph));
  cudaGraphExec_t exec;
  MUST(cudaGraphInstantiate(&exec, graph, 0));
  MUST(cudaGraphLaunch(exec, world.stream));
  MUST(cudaStreamSynchronize(world.stream));
  EXPECT(world.host.runs == 1 && world.host.result[0] == 108);
  // Outside of graphs the stream works on.
  MUST(cudaMemcpyAsync(world.host.result, world.device, kBytes, cudaMemcpyDeviceToHost,
                       world.stream));
  MUST(cudaStreamSynchronize(world.stream));
  EXPECT(world.host.result[0] == 0);
  // A captured stream that never joined again still counts after its end.
  MUST(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
  MUST(cudaStreamBeginCapture(world.stream, cudaStreamCaptureModeGlobal));
  MUST(cudaEventRecord(there, world.stream));
  MUST(cudaStreamWaitEvent(side, there));
  MUST(cudaMemsetAsync(other, 0, kBytes, side));
  MUST(cudaStreamDestroy(side));
  EXPECT(cudaStreamEndCapture(world.stream, &graph) == cudaErrorStreamCaptureUnjoined);
  (void)cudaGetLastError();
  // Calls that a capture forbids, and calls that it does not support.
  MUST(cudaStreamBeginCapture(world.stream, cudaStreamCaptureModeGlobal));
  EXPECT(cudaMemcpy(world.host.result, world.device, 4, cudaMemcpyDeviceToHost) ==
         cudaErrorStreamCaptureUnsupported);
  EXPECT(cudaStreamEndCapture(world.stream, &graph) == cudaErrorStreamCaptureInvalidated);
  (void)cudaGetLastError();
  MUST(cudaGraphExecDestroy(exec));
}

struct Built {
  cudaGraph_t graph;
  cudaGraphNode_t in, work, out, call;
  cudaKernelNodeParams launch = {};
  int count = kCount, what = 1;
  void* arguments[3];
};

static void build(World& world, Built& built) {
  MUST(cudaGraphCreate(&built.graph, 0));
  built.arguments[0] = &world.device;
  built.arguments[1] = &built.count;
  built.arguments[2] = &built.what;
  built.launch.func = reinterpret_cast<void*>(add);
  built.launch.gridDim = dim3((kCount + 255) / 256);
  built.launch.blockDim = dim3(256);
  built.launch.kernelParams = built.arguments;
  // Added out of order: only the edges determine the sequence.
  MUST(cudaGraphAddMemcpyNode1D(&built.out, built.graph, nullptr, 0, world.host.result,
                                world.device, kBytes, cudaMemcpyDeviceToHost));
  MUST(cudaGraphAddMemcpyNode1D(&built.in, built.graph, nullptr, 0, world.device, world.host.source,
                                kBytes, cudaMemcpyHostToDevice));
  MUST(cudaGraphAddKernelNode(&built.work, built.graph, &built.in, 1, &built.launch));
  cudaHostNodeParams host = {count, &world.host};
  MUST(cudaGraphAddHostNode(&built.call, built.graph, &built.out, 1, &host));
  MUST(cudaGraphAddDependencies(built.graph, &built.work, &built.out, nullptr, 1));
}

static void shape(const Built& built) {
  cudaGraphNodeType type;
  for (cudaGraphNode_t node : {built.in, built.out}) {
    MUST(cudaGraphNodeGetType(node, &type));
    EXPECT(type == cudaGraphNodeTypeMemcpy);
  }
  MUST(cudaGraphNodeGetType(built.call, &type));
  EXPECT(type == cudaGraphNodeTypeHost);
  cudaGraphNode_t nodes[8], from[8], to[8];
  size_t count = 8;
  MUST(cudaGraphGetNodes(built.graph, nodes, &count));
  EXPECT(count == 4 && nodes[0] == built.out && nodes[1] == built.in && nodes[4] == nullptr);
  count = 8;
  MUST(cudaGraphGetEdges(built.graph, from, to, nullptr, &count));
  EXPECT(count == 3);
  count = 8;
  MUST(cudaGraphGetRootNodes(built.graph, nodes, &count));
  EXPECT(count == 1 && nodes[0] == built.in);
  count = 8;
  MUST(cudaGraphNodeGetDependencies(built.out, nodes, nullptr, &count));
  EXPECT(count == 1 && nodes[0] == built.work);
  count = 8;
  MUST(cudaGraphNodeGetDependentNodes(built.work, nodes, nullptr, &count));
  EXPECT(count == 1 && nodes[0] == built.out);
  MUST(cudaGraphRemoveDependencies(built.graph, &built.work, &built.out, nullptr, 1));
  MUST(cudaGraphGetEdges(built.graph, nullptr, nullptr, nullptr, &count));
  EXPECT(count == 2);
  MUST(cudaGraphAddDependencies(built.graph, &built.work, &built.out, nullptr, 1));
}

static void run(World& world, cudaGraphExec_t exec) {
  MUST(cudaGraphLaunch(exec, world.stream));
  MUST(cudaStreamSynchronize(world.stream));
}

static void changed() {
  World world(true);
  world.fill(7);
  Built built;
  build(world, built);
  shape(built);
  cudaGraphExec_t exec;
  MUST(cudaGraphInstantiate(&exec, built.graph, 0));
  run(world, exec);
  EXPECT(world.host.runs == 1 && world.host.result[kCount - 1] == 8);
  // The executable's own source, destination and function.
  std::vector<int> source(kCount, 40), result(kCount);
  Host other;
  MUST(cudaGraphExecMemcpyNodeSetParams1D(exec, built.in, world.device, source.data(), kBytes,
                                          cudaMemcpyHostToDevice));
  MUST(cudaGraphExecMemcpyNodeSetParams1D(exec, built.out, result.data(), world.device, kBytes,
                                          cudaMemcpyDeviceToHost));
  cudaHostNodeParams host = {count, &other};
  MUST(cudaGraphExecHostNodeSetParams(exec, built.call, &host));
  run(world, exec);
  EXPECT(result[0] == 41 && world.host.result[0] == 8 && other.runs == 1 && world.host.runs == 1);
  source.assign(kCount, 50);
  MUST(cudaGraphExecMemcpyNodeSetParams1D(exec, built.in, world.device, source.data(), kBytes,
                                          cudaMemcpyHostToDevice));
  run(world, exec);
  EXPECT(result[kCount - 1] == 51 && other.runs == 2);
  // The graph is unchanged, and a clone of it works on its own.
  cudaGraph_t clone;
  cudaGraphNode_t in_clone;
  MUST(cudaGraphClone(&clone, built.graph));
  MUST(cudaGraphNodeFindInClone(&in_clone, built.in, clone));
  size_t nodes = 0;
  MUST(cudaGraphGetNodes(clone, nullptr, &nodes));
  EXPECT(nodes == 4);
  std::vector<int> third(kCount, 60);
  MUST(cudaGraphMemcpyNodeSetParams1D(in_clone, world.device, third.data(), kBytes,
                                      cudaMemcpyHostToDevice));
  MUST(cudaGraphDestroy(built.graph));
  cudaGraphExecUpdateResultInfo info;
  MUST(cudaGraphExecUpdate(exec, clone, &info));
  EXPECT(info.result == cudaGraphExecUpdateSuccess);
  run(world, exec);
  EXPECT(world.host.result[0] == 61 && result[0] == 51 && world.host.runs == 2 && other.runs == 2);
  // Of another shape.
  MUST(cudaGraphDestroyNode(in_clone));
  MUST(cudaGraphGetNodes(clone, nullptr, &nodes));
  EXPECT(nodes == 3);
  EXPECT(cudaGraphExecUpdate(exec, clone, &info) == cudaErrorGraphExecUpdateFailure);
  EXPECT(info.result == cudaGraphExecUpdateErrorTopologyChanged);
  (void)cudaGetLastError();
  MUST(cudaGraphDestroy(clone));
  MUST(cudaGraphLaunch(exec, world.stream));
  MUST(cudaGraphExecDestroy(exec));  // While it runs.
  MUST(cudaDeviceSynchronize());
  EXPECT(world.host.runs == 3);
}

// Sources of 5 GiB in total. Only launches before the next change could need each of them.
static void set_often() {
  constexpr size_t kLarge = size_t{64} << 20;
  std::vector<int> source(kLarge / sizeof(int), 3);
  int* device = nullptr;
  int result = 0;
  MUST(cudaMalloc(&device, kLarge));
  cudaGraph_t graph;
  cudaGraphNode_t in, out;
  MUST(cudaGraphCreate(&graph, 0));
  MUST(cudaGraphAddMemcpyNode1D(&in, graph, nullptr, 0, device, source.data(), 4,
                                cudaMemcpyHostToDevice));
  MUST(cudaGraphAddMemcpyNode1D(&out, graph, &in, 1, &result, device, 4, cudaMemcpyDeviceToHost));
  cudaGraphExec_t exec;
  MUST(cudaGraphInstantiate(&exec, graph, 0));
  for (size_t i = 0; i < 80; ++i) {
    MUST(cudaGraphExecMemcpyNodeSetParams1D(exec, in, device, source.data() + i, kLarge - i * 4,
                                            cudaMemcpyHostToDevice));
    if (i % 40 == 0) MUST(cudaGraphLaunch(exec, nullptr));
  }
  MUST(cudaDeviceSynchronize());  // The earlier launches have read it.
  source[79] = 4;
  MUST(cudaGraphLaunch(exec, nullptr));
  MUST(cudaDeviceSynchronize());
  EXPECT(result == 4);
  MUST(cudaGraphExecDestroy(exec));
  MUST(cudaGraphDestroy(graph));
  MUST(cudaFree(device));
}

// A box of lines, a child graph, and a copy between two places of the host.
static void boxes() {
  constexpr size_t kWidth = 40, kLines = 7, kSlices = 3, kPitch = 64, kRows = 9;
  std::vector<unsigned char> from(kPitch * kRows * kSlices), to(from.size(), 0);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(i * 7 + 1);
  cudaPitchedPtr device;
  const cudaExtent extent = make_cudaExtent(kWidth, kLines, kSlices);
  MUST(cudaMalloc3D(&device, extent));
  cudaGraph_t graph, outer;
  MUST(cudaGraphCreate(&graph, 0));
  cudaGraphNode_t in, out, child;
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = make_cudaPitchedPtr(from.data(), kPitch, kPitch, kRows);
  copy.dstPtr = device;
  copy.extent = extent;
  copy.kind = cudaMemcpyHostToDevice;
  MUST(cudaGraphAddMemcpyNode(&in, graph, nullptr, 0, &copy));
  copy.srcPtr = device;
  copy.dstPtr = make_cudaPitchedPtr(to.data(), kPitch, kPitch, kRows);
  copy.kind = cudaMemcpyDeviceToHost;
  MUST(cudaGraphAddMemcpyNode(&out, graph, &in, 1, &copy));
  Host host;
  MUST(cudaGraphCreate(&outer, 0));
  MUST(cudaGraphAddChildGraphNode(&child, outer, nullptr, 0, graph));
  MUST(cudaGraphDestroy(graph));
  std::vector<unsigned char> moved(from.size());
  cudaGraphNode_t move, call;
  MUST(cudaGraphAddMemcpyNode1D(&move, outer, &child, 1, moved.data(), to.data(), to.size(),
                                cudaMemcpyHostToHost));
  cudaHostNodeParams function = {count, &host};
  MUST(cudaGraphAddHostNode(&call, outer, &move, 1, &function));
  cudaGraphNodeType type;
  MUST(cudaGraphNodeGetType(move, &type));
  EXPECT(type == cudaGraphNodeTypeMemcpy);
  MUST(cudaGraphNodeGetType(call, &type));
  EXPECT(type == cudaGraphNodeTypeHost);
  cudaGraphExec_t exec;
  MUST(cudaGraphInstantiate(&exec, outer, 0));
  MUST(cudaGraphDestroy(outer));
  MUST(cudaGraphLaunch(exec, nullptr));
  MUST(cudaDeviceSynchronize());
  EXPECT(host.runs == 1 && moved == to);
  for (size_t at = 0; at < to.size(); ++at) {
    const bool inside = at % kPitch < kWidth && at / kPitch % kRows < kLines;
    EXPECT(to[at] == (inside ? from[at] : 0));
  }
  MUST(cudaGraphExecDestroy(exec));
}

// Earlier copies of the graph's stream reach the program's memory before the graph's function runs.
// They do not overwrite the graph's own copies, for 4 bytes and for many.
static void behind_copies() {
  constexpr size_t kMany = size_t{1} << 20;
  struct Seen {
    const volatile int* place;
    int value;
  } seen = {nullptr, -1};
  const cudaHostFn_t look = [](void* user) {
    auto* const own = static_cast<Seen*>(user);
    own->value = *own->place;
  };
  int *values, *other, *to;
  cudaStream_t stream;
  MUST(cudaMalloc(&values, kMany));
  MUST(cudaMalloc(&other, 4));
  MUST(cudaMallocHost(&to, kMany));
  MUST(cudaStreamCreate(&stream));
  MUST(cudaMemset(other, 0x7f, 4));
  for (const size_t size : {size_t{4}, kMany}) {
    int* const last = to + size / 4 - 1;
    seen.place = last;
    cudaGraph_t graph;
    cudaGraphNode_t function, out;
    const cudaHostNodeParams called = {look, &seen};
    MUST(cudaGraphCreate(&graph, 0));
    MUST(cudaGraphAddHostNode(&function, graph, nullptr, 0, &called));
    MUST(cudaGraphAddMemcpyNode1D(&out, graph, &function, 1, last, other, 4,
                                  cudaMemcpyDeviceToHost));
    cudaGraphExec_t exec;
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 200; ++i) {
      const int byte = i % 100 + 1;
      MUST(cudaMemsetAsync(values, byte, size, stream));
      MUST(cudaMemcpyAsync(to, values, size, cudaMemcpyDeviceToHost, stream));
      MUST(cudaGraphLaunch(exec, stream));
      MUST(cudaStreamSynchronize(stream));
      EXPECT(seen.value == byte * 0x01010101);
      EXPECT(*last == 0x7f7f7f7f);
    }
    MUST(cudaGraphExecDestroy(exec));
    MUST(cudaGraphDestroy(graph));
  }
  MUST(cudaFreeHost(to));
  MUST(cudaFree(values));
  MUST(cudaFree(other));
}

// Graphs that end with their context without being destroyed. The next context's copies use other
// memory than theirs.
static void after_reset() {
  for (int round = 0; round < 2; ++round) {
    World world(true);
    world.fill(10);
    const cudaGraph_t graph = capture(world);
    MUST(cudaGraphDestroy(capture(world)));  // Its memory becomes available for the next copies.
    cudaGraphExec_t exec;
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    MUST(cudaGraphDestroy(capture(world)));
    MUST(cudaGraphLaunch(exec, world.stream));
    MUST(cudaStreamSynchronize(world.stream));
    EXPECT(world.host.runs == 1 && world.host.seen == 11 && world.host.result[0] == 23);
    MUST(cudaDeviceReset());
  }
}

int main() {
  captured(true);
  captured(false);
  forked();
  changed();
  set_often();
  boxes();
  behind_copies();
  after_reset();
  std::puts("PASSED");
  return 0;
}
