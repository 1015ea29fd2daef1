// Runtime API: clusters of more than one block. The emulated device refuses them at every entry, so
// that none runs with wrong results. With a cluster of one block everything works.
#include <cuda_runtime.h>

#include <cstdio>

__global__ void ranks(unsigned* out) {
  unsigned rank, count;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(count));
  out[blockIdx.x] = 100 * rank + count;
}

__global__ void __cluster_dims__(2, 1, 1) made_for_two(unsigned* out) { out[blockIdx.x] = 7; }
__global__ void __cluster_dims__(1, 1, 1) made_for_one(unsigned* out) { out[blockIdx.x] = 8; }

namespace {

constexpr unsigned kBlocks = 4;
bool right = true;

void note(const char* what, cudaError_t code) {
  std::printf("%s: %s\n", what, cudaGetErrorName(code));
  (void)cudaGetLastError();
}

void same(bool good, int line) {
  if (good) return;
  std::printf("WRONG: line %d\n", line);
  right = false;
}
#define SAME(condition) same((condition), __LINE__)

void show(unsigned* out) {
  unsigned host[kBlocks];
  note("copy", cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost));
  std::printf("blocks: %x %x %x %x\n", host[0], host[1], host[2], host[3]);
  note("clear", cudaMemset(out, 0xee, sizeof host));
}

cudaError_t launch(void (*kernel)(unsigned*), unsigned* out, unsigned blocks, cudaStream_t stream) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = blocks;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(kBlocks);
  config.blockDim = dim3(1);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, out);
}

int active_clusters(void (*kernel)(unsigned*), unsigned blocks) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = blocks;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(kBlocks);
  config.blockDim = dim3(64);
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = -1;
  note("active clusters", cudaOccupancyMaxActiveClusters(&clusters, kernel, &config));
  return clusters;
}

}  // namespace

int main() {
  unsigned* out = nullptr;
  cudaStream_t stream;
  note("memory", cudaMalloc(&out, kBlocks * sizeof *out));
  note("stream", cudaStreamCreate(&stream));
  note("clear", cudaMemset(out, 0xee, kBlocks * sizeof *out));
  int supported = -1;
  note("attribute", cudaDeviceGetAttribute(&supported, cudaDevAttrClusterLaunch, 0));
  SAME(supported == 0);

  note("launch with clusters of one", launch(ranks, out, 1, nullptr));
  show(out);
  SAME(launch(ranks, out, 2, nullptr) == cudaErrorNotSupported);
  note("launch with clusters of two", cudaGetLastError());
  show(out);
  note("launch with clusters of four", launch(ranks, out, 4, stream));
  note("made for one", (made_for_one<<<kBlocks, 1>>>(out), cudaGetLastError()));
  show(out);
  made_for_two<<<kBlocks, 1>>>(out);
  SAME(cudaPeekAtLastError() == cudaErrorNotSupported);
  note("made for two", cudaGetLastError());
  show(out);
  note("the device", cudaDeviceSynchronize());

  std::printf("%d clusters of one\n", active_clusters(ranks, 1));
  SAME(active_clusters(ranks, 2) == 0);

  // Captured, and as a node of a graph.
  cudaGraph_t graph;
  note("begin", cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  note("captured", launch(ranks, out, 2, stream));
  note("captured, made for two",
       (made_for_two<<<kBlocks, 1, 0, stream>>>(out), cudaGetLastError()));
  note("captured, made for one",
       (made_for_one<<<kBlocks, 1, 0, stream>>>(out), cudaGetLastError()));
  note("end", cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t exec;
  note("instantiate", cudaGraphInstantiate(&exec, graph, 0));
  note("graph", cudaGraphLaunch(exec, stream));
  note("wait", cudaStreamSynchronize(stream));
  show(out);
  cudaGraph_t built;
  note("create", cudaGraphCreate(&built, 0));
  void* arguments[] = {&out};
  cudaKernelNodeParams node = {};
  node.func = reinterpret_cast<void*>(made_for_two);
  node.gridDim = dim3(kBlocks);
  node.blockDim = dim3(1);
  node.kernelParams = arguments;
  cudaGraphNode_t added;
  note("node", cudaGraphAddKernelNode(&added, built, nullptr, 0, &node));
  note("the device", cudaDeviceSynchronize());
  std::printf(right ? "PASSED\n" : "FAILED\n");
  return 0;
}
