// Graphs: a program of CUDA's runtime, written without knowledge of gpurun. It captures graphs from
// two streams, builds them by hand, launches them again, changes and clones them. Prints "ok" when
// all is right.
#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

#include "tests/support/cuda.h"

__global__ void add(int* values, int count, int what) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] += what;
}

constexpr int kCount = 1000;

void count_call(void* counter) { ++*static_cast<int*>(counter); }

// Forks from one stream to another and joins again. The copy out sees the work of both.
int captured() {
  int *first = nullptr, *second = nullptr, *host = nullptr, calls = 0;
  MUST(cudaMalloc(&first, kCount * sizeof(int)));
  MUST(cudaMalloc(&second, kCount * sizeof(int)));
  MUST(cudaMallocHost(&host, kCount * sizeof(int)));
  cudaStream_t stream, side;
  cudaEvent_t forked, joined;
  MUST(cudaStreamCreate(&stream));
  MUST(cudaStreamCreate(&side));
  MUST(cudaEventCreate(&forked));
  MUST(cudaEventCreate(&joined));
  MUST(cudaMemset(first, 0, kCount * sizeof(int)));
  MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  MUST(cudaMemsetAsync(second, 0, kCount * sizeof(int), stream));
  MUST(cudaEventRecord(forked, stream));
  MUST(cudaStreamWaitEvent(side, forked));
  add<<<4, 256, 0, side>>>(second, kCount, 5);
  add<<<4, 256, 0, stream>>>(first, kCount, 1);
  MUST(cudaEventRecord(joined, side));
  MUST(cudaStreamWaitEvent(stream, joined));
  MUST(cudaMemcpyAsync(host, second, kCount * sizeof(int), cudaMemcpyDeviceToHost, stream));
  MUST(cudaLaunchHostFunc(stream, count_call, &calls));
  cudaStreamCaptureStatus status;
  MUST(cudaStreamIsCapturing(side, &status));
  EXPECT(status == cudaStreamCaptureStatusActive);
  cudaGraph_t graph;
  MUST(cudaStreamEndCapture(stream, &graph));
  size_t nodes = 0;
  MUST(cudaGraphGetNodes(graph, nullptr, &nodes));
  EXPECT(nodes == 5);
  cudaGraphNode_t each[5];
  int kernels = 0;
  MUST(cudaGraphGetNodes(graph, each, &nodes));
  for (cudaGraphNode_t node : each) {
    cudaGraphNodeType type;
    MUST(cudaGraphNodeGetType(node, &type));
    if (type != cudaGraphNodeTypeKernel) continue;
    cudaKernelNodeParams told = {};
    MUST(cudaGraphKernelNodeGetParams(node, &told));
    EXPECT(told.func == reinterpret_cast<void*>(add) && told.gridDim.x == 4);
    ++kernels;
  }
  EXPECT(kernels == 2);
  EXPECT(calls == 0);  // Nothing has run yet.
  cudaGraphExec_t exec;
  MUST(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) MUST(cudaGraphLaunch(exec, stream));
  MUST(cudaStreamSynchronize(stream));
  EXPECT(calls == 3 && host[0] == 5 && host[kCount - 1] == 5);
  MUST(cudaMemcpy(host, first, kCount * sizeof(int), cudaMemcpyDeviceToHost));
  EXPECT(host[0] == 3 && host[kCount - 1] == 3);
  // Work of a side stream that is never joined is an error.
  MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  MUST(cudaEventRecord(forked, stream));
  MUST(cudaStreamWaitEvent(side, forked));
  add<<<4, 256, 0, side>>>(second, kCount, 5);
  cudaGraph_t none;
  EXPECT(cudaStreamEndCapture(stream, &none) == cudaErrorStreamCaptureUnjoined);
  // The error stays when the stream is destroyed. After a join the stream may end before the
  // capture.
  for (const bool joins : {false, true}) {
    cudaStream_t passing;
    MUST(cudaStreamCreateWithFlags(&passing, cudaStreamNonBlocking));
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    MUST(cudaEventRecord(forked, stream));
    MUST(cudaStreamWaitEvent(passing, forked));
    add<<<4, 256, 0, passing>>>(second, kCount, 5);
    if (joins) {
      MUST(cudaEventRecord(joined, passing));
      MUST(cudaStreamWaitEvent(stream, joined));
    }
    MUST(cudaStreamDestroy(passing));
    const cudaError_t ended = cudaStreamEndCapture(stream, &none);
    EXPECT(ended == (joins ? cudaSuccess : cudaErrorStreamCaptureUnjoined));
    if (joins) MUST(cudaGraphDestroy(none));
  }
  // A call that a capture forbids invalidates it.
  MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  EXPECT(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);
  EXPECT(cudaStreamEndCapture(stream, &none) == cudaErrorStreamCaptureInvalidated);
  (void)cudaGetLastError();
  MUST(cudaGraphExecDestroy(exec));
  MUST(cudaGraphDestroy(graph));
  return 0;
}

// memset -> kernel -> copy, then another kernel parameter in the executable, then an update.
int built() {
  int* device = nullptr;
  std::vector<int> host(kCount, -1);
  MUST(cudaMalloc(&device, kCount * sizeof(int)));
  cudaGraph_t graph;
  cudaGraphNode_t clear, kernel, copy;
  MUST(cudaGraphCreate(&graph, 0));
  cudaMemsetParams zero = {};
  zero.dst = device;
  zero.elementSize = 4;
  zero.width = kCount;
  zero.height = 1;
  MUST(cudaGraphAddMemsetNode(&clear, graph, nullptr, 0, &zero));
  int count = kCount, what = 7;
  void* arguments[] = {&device, &count, &what};
  cudaKernelNodeParams launch = {};
  launch.func = reinterpret_cast<void*>(add);
  launch.gridDim = dim3(4);
  launch.blockDim = dim3(256);
  launch.kernelParams = arguments;
  MUST(cudaGraphAddKernelNode(&kernel, graph, &clear, 1, &launch));
  // The node reports the program's own kernel, and its report can be set again.
  cudaKernelNodeParams told = {};
  MUST(cudaGraphKernelNodeGetParams(kernel, &told));
  EXPECT(told.func == launch.func && told.gridDim.x == 4 && told.blockDim.x == 256);
  EXPECT(*static_cast<int*>(told.kernelParams[2]) == 7);
  MUST(cudaGraphKernelNodeSetParams(kernel, &told));
  MUST(cudaGraphAddMemcpyNode1D(&copy, graph, nullptr, 0, host.data(), device, kCount * sizeof(int),
                                cudaMemcpyDeviceToHost));
  MUST(cudaGraphAddDependencies(graph, &kernel, &copy, nullptr, 1));
  cudaGraphNodeType type;
  MUST(cudaGraphNodeGetType(kernel, &type));
  EXPECT(type == cudaGraphNodeTypeKernel);
  size_t edges = 0, roots = 0;
  MUST(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
  MUST(cudaGraphGetRootNodes(graph, nullptr, &roots));
  EXPECT(edges == 2 && roots == 1);
  cudaGraphExec_t exec;
  MUST(cudaGraphInstantiate(&exec, graph, 0));
  what = 100;  // The node holds a copy.
  MUST(cudaGraphLaunch(exec, nullptr));
  MUST(cudaDeviceSynchronize());
  EXPECT(host[0] == 7 && host[kCount - 1] == 7);
  MUST(cudaGraphExecKernelNodeSetParams(exec, kernel, &launch));
  MUST(cudaGraphLaunch(exec, nullptr));
  MUST(cudaDeviceSynchronize());
  EXPECT(host[0] == 100);
  cudaGraph_t clone;
  cudaGraphNode_t in_clone;
  MUST(cudaGraphClone(&clone, graph));
  MUST(cudaGraphNodeFindInClone(&in_clone, kernel, clone));
  what = 11;
  MUST(cudaGraphKernelNodeSetParams(in_clone, &launch));
  cudaGraphExecUpdateResultInfo info;
  MUST(cudaGraphExecUpdate(exec, clone, &info));
  MUST(cudaGraphLaunch(exec, nullptr));
  MUST(cudaDeviceSynchronize());
  EXPECT(host[0] == 11);
  MUST(cudaGraphDestroyNode(in_clone));
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
  MUST(cudaStreamCreate(&stream));
  MUST(cudaMallocHost(&host, kCount * sizeof(int)));
  MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  MUST(cudaMallocAsync(&inside, kCount * sizeof(int), stream));
  MUST(cudaMemsetAsync(inside, 0, kCount * sizeof(int), stream));
  add<<<4, 256, 0, stream>>>(inside, kCount, 21);
  MUST(cudaMemcpyAsync(host, inside, kCount * sizeof(int), cudaMemcpyDeviceToHost, stream));
  MUST(cudaFreeAsync(inside, stream));
  cudaGraph_t graph;
  MUST(cudaStreamEndCapture(stream, &graph));
  cudaUserObject_t object;
  MUST(cudaUserObjectCreate(&object, &ended, set_flag, 1, cudaUserObjectNoDestructorSync));
  MUST(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
  cudaGraphExec_t exec;
  MUST(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 2; ++i) {
    host[kCount - 1] = 0;
    MUST(cudaGraphLaunch(exec, stream));
    MUST(cudaStreamSynchronize(stream));
    EXPECT(host[kCount - 1] == 21);
  }
  MUST(cudaGraphDestroy(graph));
  EXPECT(ended == 0);
  MUST(cudaGraphExecDestroy(exec));
  MUST(cudaDeviceSynchronize());
  EXPECT(ended == 1);
  return 0;
}

// Memory that a launch allocated and did not free belongs to the program, even after the graph's
// end (PyTorch frees its tensors after its graphs).
int outlives() {
  cudaStream_t stream;
  int *inside = nullptr, *host = nullptr;
  MUST(cudaStreamCreate(&stream));
  MUST(cudaMallocHost(&host, kCount * sizeof(int)));
  MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  MUST(cudaMallocAsync(&inside, kCount * sizeof(int), stream));
  MUST(cudaMemsetAsync(inside, 0, kCount * sizeof(int), stream));
  add<<<4, 256, 0, stream>>>(inside, kCount, 4);
  cudaGraph_t graph;
  MUST(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t exec;
  MUST(cudaGraphInstantiate(&exec, graph, 0));
  MUST(cudaGraphLaunch(exec, stream));
  MUST(cudaStreamSynchronize(stream));
  MUST(cudaGraphExecDestroy(exec));
  MUST(cudaGraphDestroy(graph));
  MUST(cudaMemcpy(host, inside, kCount * sizeof(int), cudaMemcpyDeviceToHost));
  EXPECT(host[kCount - 1] == 4);
  MUST(cudaFreeAsync(inside, stream));
  MUST(cudaStreamSynchronize(stream));
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
  MUST(cudaMalloc(&device, sizeof(int)));
  MUST(cudaMallocHost(&pinned, sizeof(int)));
  cudaStream_t stream;
  MUST(cudaStreamCreate(&stream));
  for (int* source : {pinned, &pageable}) {
    cudaGraph_t graph;
    cudaGraphNode_t function, copy;
    const cudaHostNodeParams called = {write_two, source};
    MUST(cudaGraphCreate(&graph, 0));
    MUST(cudaGraphAddHostNode(&function, graph, nullptr, 0, &called));
    MUST(cudaGraphAddMemcpyNode1D(&copy, graph, &function, 1, device, source, sizeof(int),
                                  cudaMemcpyHostToDevice));
    cudaGraphExec_t exec, outer_exec;
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    *source = 1;
    MUST(cudaGraphLaunch(exec, stream));
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaMemcpy(&seen, device, sizeof(int), cudaMemcpyDeviceToHost));
    EXPECT(seen == (source == pinned ? 2 : 1) && *source == 2);
    cudaGraph_t outer;
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    MUST(cudaGraphLaunch(exec, stream));
    MUST(cudaStreamEndCapture(stream, &outer));
    MUST(cudaGraphInstantiate(&outer_exec, outer, 0));
    *source = 3;
    MUST(cudaGraphLaunch(outer_exec, stream));
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaMemcpy(&seen, device, sizeof(int), cudaMemcpyDeviceToHost));
    EXPECT(seen == (source == pinned ? 2 : 3));
    MUST(cudaGraphExecDestroy(outer_exec));
    MUST(cudaGraphExecDestroy(exec));
    MUST(cudaGraphDestroy(outer));
    MUST(cudaGraphDestroy(graph));
  }
  MUST(cudaStreamDestroy(stream));
  MUST(cudaFreeHost(pinned));
  MUST(cudaFree(device));
  return 0;
}

int main() {
  if (captured() != 0 || built() != 0 || keeps() != 0 || outlives() != 0 || reads() != 0) return 1;
  std::puts("ok");
  return 0;
}
