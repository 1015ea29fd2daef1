// Graphs: a program of CUDA's runtime, written without knowledge of gpurun. It captures graphs from
// two streams, builds them by hand, launches them again, changes and clones them. Prints "ok" when
// all is right.
#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

#define CHECK(call)                                                                                \
  do {                                                                                             \
    const cudaError_t error = (call);                                                              \
    if (error != cudaSuccess) {                                                                    \
      std::printf("line %d: %s: %d %s\n", __LINE__, #call, int(error), cudaGetErrorString(error)); \
      return 1;                                                                                    \
    }                                                                                              \
  } while (false)
#define EXPECT(condition)                                     \
  do {                                                        \
    if (!(condition)) {                                       \
      std::printf("line %d: not %s\n", __LINE__, #condition); \
      return 1;                                               \
    }                                                         \
  } while (false)

__global__ void add(int* values, int count, int what) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] += what;
}

constexpr int kCount = 1000;

void count_call(void* counter) { ++*static_cast<int*>(counter); }

// Forks from one stream to another and joins again. The copy out sees the work of both.
int captured() {
  int *first = nullptr, *second = nullptr, *host = nullptr, calls = 0;
  CHECK(cudaMalloc(&first, kCount * sizeof(int)));
  CHECK(cudaMalloc(&second, kCount * sizeof(int)));
  CHECK(cudaMallocHost(&host, kCount * sizeof(int)));
  cudaStream_t stream, side;
  cudaEvent_t forked, joined;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaStreamCreate(&side));
  CHECK(cudaEventCreate(&forked));
  CHECK(cudaEventCreate(&joined));
  CHECK(cudaMemset(first, 0, kCount * sizeof(int)));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  CHECK(cudaMemsetAsync(second, 0, kCount * sizeof(int), stream));
  CHECK(cudaEventRecord(forked, stream));
  CHECK(cudaStreamWaitEvent(side, forked));
  add<<<4, 256, 0, side>>>(second, kCount, 5);
  add<<<4, 256, 0, stream>>>(first, kCount, 1);
  CHECK(cudaEventRecord(joined, side));
  CHECK(cudaStreamWaitEvent(stream, joined));
  CHECK(cudaMemcpyAsync(host, second, kCount * sizeof(int), cudaMemcpyDeviceToHost, stream));
  CHECK(cudaLaunchHostFunc(stream, count_call, &calls));
  cudaStreamCaptureStatus status;
  CHECK(cudaStreamIsCapturing(side, &status));
  EXPECT(status == cudaStreamCaptureStatusActive);
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(stream, &graph));
  size_t nodes = 0;
  CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
  EXPECT(nodes == 5);
  cudaGraphNode_t each[5];
  int kernels = 0;
  CHECK(cudaGraphGetNodes(graph, each, &nodes));
  for (cudaGraphNode_t node : each) {
    cudaGraphNodeType type;
    CHECK(cudaGraphNodeGetType(node, &type));
    if (type != cudaGraphNodeTypeKernel) continue;
    cudaKernelNodeParams told = {};
    CHECK(cudaGraphKernelNodeGetParams(node, &told));
    EXPECT(told.func == reinterpret_cast<void*>(add) && told.gridDim.x == 4);
    ++kernels;
  }
  EXPECT(kernels == 2);
  EXPECT(calls == 0);  // Nothing has run yet.
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  EXPECT(calls == 3 && host[0] == 5 && host[kCount - 1] == 5);
  CHECK(cudaMemcpy(host, first, kCount * sizeof(int), cudaMemcpyDeviceToHost));
  EXPECT(host[0] == 3 && host[kCount - 1] == 3);
  // Work of a side stream that is never joined is an error.
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  CHECK(cudaEventRecord(forked, stream));
  CHECK(cudaStreamWaitEvent(side, forked));
  add<<<4, 256, 0, side>>>(second, kCount, 5);
  cudaGraph_t none;
  EXPECT(cudaStreamEndCapture(stream, &none) == cudaErrorStreamCaptureUnjoined);
  // The error stays when the stream is destroyed. After a join the stream may end before the
  // capture.
  for (const bool joins : {false, true}) {
    cudaStream_t passing;
    CHECK(cudaStreamCreateWithFlags(&passing, cudaStreamNonBlocking));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK(cudaEventRecord(forked, stream));
    CHECK(cudaStreamWaitEvent(passing, forked));
    add<<<4, 256, 0, passing>>>(second, kCount, 5);
    if (joins) {
      CHECK(cudaEventRecord(joined, passing));
      CHECK(cudaStreamWaitEvent(stream, joined));
    }
    CHECK(cudaStreamDestroy(passing));
    const cudaError_t ended = cudaStreamEndCapture(stream, &none);
    EXPECT(ended == (joins ? cudaSuccess : cudaErrorStreamCaptureUnjoined));
    if (joins) CHECK(cudaGraphDestroy(none));
  }
  // A call that a capture forbids invalidates it.
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  EXPECT(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);
  EXPECT(cudaStreamEndCapture(stream, &none) == cudaErrorStreamCaptureInvalidated);
  (void)cudaGetLastError();
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  return 0;
}

// memset -> kernel -> copy, then another kernel parameter in the executable, then an update.
int built() {
  int* device = nullptr;
  std::vector<int> host(kCount, -1);
  CHECK(cudaMalloc(&device, kCount * sizeof(int)));
  cudaGraph_t graph;
  cudaGraphNode_t clear, kernel, copy;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaMemsetParams zero = {};
  zero.dst = device;
  zero.elementSize = 4;
  zero.width = kCount;
  zero.height = 1;
  CHECK(cudaGraphAddMemsetNode(&clear, graph, nullptr, 0, &zero));
  int count = kCount, what = 7;
  void* arguments[] = {&device, &count, &what};
  cudaKernelNodeParams launch = {};
  launch.func = reinterpret_cast<void*>(add);
  launch.gridDim = dim3(4);
  launch.blockDim = dim3(256);
  launch.kernelParams = arguments;
  CHECK(cudaGraphAddKernelNode(&kernel, graph, &clear, 1, &launch));
  // The node reports the program's own kernel, and its report can be set again.
  cudaKernelNodeParams told = {};
  CHECK(cudaGraphKernelNodeGetParams(kernel, &told));
  EXPECT(told.func == launch.func && told.gridDim.x == 4 && told.blockDim.x == 256);
  EXPECT(*static_cast<int*>(told.kernelParams[2]) == 7);
  CHECK(cudaGraphKernelNodeSetParams(kernel, &told));
  CHECK(cudaGraphAddMemcpyNode1D(&copy, graph, nullptr, 0, host.data(), device,
                                 kCount * sizeof(int), cudaMemcpyDeviceToHost));
  CHECK(cudaGraphAddDependencies(graph, &kernel, &copy, nullptr, 1));
  cudaGraphNodeType type;
  CHECK(cudaGraphNodeGetType(kernel, &type));
  EXPECT(type == cudaGraphNodeTypeKernel);
  size_t edges = 0, roots = 0;
  CHECK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
  CHECK(cudaGraphGetRootNodes(graph, nullptr, &roots));
  EXPECT(edges == 2 && roots == 1);
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  what = 100;  // The node holds a copy.
  CHECK(cudaGraphLaunch(exec, nullptr));
  CHECK(cudaDeviceSynchronize());
  EXPECT(host[0] == 7 && host[kCount - 1] == 7);
  CHECK(cudaGraphExecKernelNodeSetParams(exec, kernel, &launch));
  CHECK(cudaGraphLaunch(exec, nullptr));
  CHECK(cudaDeviceSynchronize());
  EXPECT(host[0] == 100);
  cudaGraph_t clone;
  cudaGraphNode_t in_clone;
  CHECK(cudaGraphClone(&clone, graph));
  CHECK(cudaGraphNodeFindInClone(&in_clone, kernel, clone));
  what = 11;
  CHECK(cudaGraphKernelNodeSetParams(in_clone, &launch));
  cudaGraphExecUpdateResultInfo info;
  CHECK(cudaGraphExecUpdate(exec, clone, &info));
  CHECK(cudaGraphLaunch(exec, nullptr));
  CHECK(cudaDeviceSynchronize());
  EXPECT(host[0] == 11);
  CHECK(cudaGraphDestroyNode(in_clone));
  EXPECT(cudaGraphExecUpdate(exec, clone, &info) == cudaErrorGraphExecUpdateFailure);
  (void)cudaGetLastError();
  return 0;
}

void set_flag(void* flag) { *static_cast<int*>(flag) = 1; }

// Memory that a capture allocates has one address for every launch. A user object of the program
// lives as long as the last thing made of the graph.
int keeps() {
  cudaStream_t stream;
  int *inside = nullptr, *host = nullptr, ended = 0;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaMallocHost(&host, kCount * sizeof(int)));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  CHECK(cudaMallocAsync(&inside, kCount * sizeof(int), stream));
  CHECK(cudaMemsetAsync(inside, 0, kCount * sizeof(int), stream));
  add<<<4, 256, 0, stream>>>(inside, kCount, 21);
  CHECK(cudaMemcpyAsync(host, inside, kCount * sizeof(int), cudaMemcpyDeviceToHost, stream));
  CHECK(cudaFreeAsync(inside, stream));
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(stream, &graph));
  cudaUserObject_t object;
  CHECK(cudaUserObjectCreate(&object, &ended, set_flag, 1, cudaUserObjectNoDestructorSync));
  CHECK(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 2; ++i) {
    host[kCount - 1] = 0;
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(host[kCount - 1] == 21);
  }
  CHECK(cudaGraphDestroy(graph));
  EXPECT(ended == 0);
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaDeviceSynchronize());
  EXPECT(ended == 1);
  return 0;
}

// Memory that a launch allocated and did not free belongs to the program, even after the graph's
// end (PyTorch frees its tensors after its graphs).
int outlives() {
  cudaStream_t stream;
  int *inside = nullptr, *host = nullptr;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaMallocHost(&host, kCount * sizeof(int)));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  CHECK(cudaMallocAsync(&inside, kCount * sizeof(int), stream));
  CHECK(cudaMemsetAsync(inside, 0, kCount * sizeof(int), stream));
  add<<<4, 256, 0, stream>>>(inside, kCount, 4);
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaMemcpy(host, inside, kCount * sizeof(int), cudaMemcpyDeviceToHost));
  EXPECT(host[kCount - 1] == 4);
  CHECK(cudaFreeAsync(inside, stream));
  CHECK(cudaStreamSynchronize(stream));
  EXPECT(cudaFree(inside) == cudaErrorInvalidValue);
  (void)cudaGetLastError();
  return 0;
}

void write_two(void* place) { *static_cast<int*>(place) = 2; }

// A launch reads pageable memory at once, and pinned memory when the graph reaches the copy. A
// function before the copy shows the difference. A captured launch reads when its graph is
// launched.
int reads() {
  int *device = nullptr, *pinned = nullptr, pageable = 0, seen = 0;
  CHECK(cudaMalloc(&device, sizeof(int)));
  CHECK(cudaMallocHost(&pinned, sizeof(int)));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  for (int* source : {pinned, &pageable}) {
    cudaGraph_t graph;
    cudaGraphNode_t function, copy;
    const cudaHostNodeParams called = {write_two, source};
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddHostNode(&function, graph, nullptr, 0, &called));
    CHECK(cudaGraphAddMemcpyNode1D(&copy, graph, &function, 1, device, source, sizeof(int),
                                   cudaMemcpyHostToDevice));
    cudaGraphExec_t exec, outer_exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    *source = 1;
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(&seen, device, sizeof(int), cudaMemcpyDeviceToHost));
    EXPECT(seen == (source == pinned ? 2 : 1) && *source == 2);
    cudaGraph_t outer;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamEndCapture(stream, &outer));
    CHECK(cudaGraphInstantiate(&outer_exec, outer, 0));
    *source = 3;
    CHECK(cudaGraphLaunch(outer_exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(&seen, device, sizeof(int), cudaMemcpyDeviceToHost));
    EXPECT(seen == (source == pinned ? 2 : 3));
    CHECK(cudaGraphExecDestroy(outer_exec));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(outer));
    CHECK(cudaGraphDestroy(graph));
  }
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFreeHost(pinned));
  CHECK(cudaFree(device));
  return 0;
}

int main() {
  if (captured() != 0 || built() != 0 || keeps() != 0 || outlives() != 0 || reads() != 0) return 1;
  std::puts("ok");
  return 0;
}
