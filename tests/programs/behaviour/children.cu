// Runtime API: kernels that launch kernels, through CUDA's device runtime: order by streams, events
// and the end of a grid, copies and memsets, memory, errors, and queries by the host.
#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

#include "tests/support/cuda.h"

constexpr int kLogWords = 4096;
__device__ unsigned log_count;
__device__ unsigned log_words[kLogWords];

__device__ void note(unsigned word) {
  const unsigned at = atomicAdd(&log_count, 1u);
  if (at < kLogWords) log_words[at] = word;
}

__global__ void leaf(unsigned word) { note(word); }

__global__ void branch(unsigned word) {
  leaf<<<1, 1, 0, cudaStreamTailLaunch>>>(word + 9);
  leaf<<<1, 1>>>(word + 1);
  leaf<<<1, 1, 0, cudaStreamFireAndForget>>>(word + 2);
  note(word);
}

__global__ void tree() {
  cudaStream_t one, two;
  cudaEvent_t event;
  note(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
  note(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
  note(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  branch<<<1, 1, 0, one>>>(100);
  note(cudaEventRecord(event, one));
  note(cudaStreamWaitEvent(two, event, 0));
  leaf<<<1, 1, 0, two>>>(200);
  branch<<<1, 1, 0, cudaStreamTailLaunch>>>(300);
  note(cudaEventDestroy(event));
  note(cudaStreamDestroy(one));
  note(cudaStreamDestroy(two));
  note(cudaGetLastError());
}

// Sums of a binary tree, with one launch for each level. The copy follows in the same stream.
__global__ void halve(const float* in, float* out, int pairs) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < pairs) out[i] = in[2 * i] + in[2 * i + 1];
}
__global__ void sum(float* a, float* b, int count, float* result) {
  while (count > 1) {
    halve<<<(count / 2 + 63) / 64, 64>>>(a, b, count / 2);
    float* const swapped = a;
    a = b;
    b = swapped;
    count /= 2;
  }
  cudaMemcpyAsync(result, a, sizeof *result, cudaMemcpyDeviceToDevice, 0);
}

// Children see the parent's writes from before the launch. At the end the parent sees theirs.
struct Box {
  int numbers[40];
};
__global__ void add_box(Box box, int* out) { out[threadIdx.x] += box.numbers[threadIdx.x]; }
__global__ void memory(int* out) {
  const int i = threadIdx.x;
  out[i] = i;
  __syncthreads();
  if (i == 0) {
    Box box;
    for (int k = 0; k < 40; ++k) box.numbers[k] = 1000 * k;
    add_box<<<1, 40>>>(box, out);
    box.numbers[1] = -1;  // Passed by value.
    // Zeros, because the runtime of CUDA 13.0 sets nothing else (its PTX does not read the value).
    cudaMemsetAsync(out + 100, 0, 15, 0);
    cudaMemset2DAsync(out + 110, 16, 0, 8, 3, 0);
    cudaMemcpyAsync(out + 130, out, 40 * sizeof *out, cudaMemcpyDeviceToDevice, 0);
  }
}

__global__ void __launch_bounds__(64) narrow() {}
__global__ void wrong() {
  leaf<<<0, 1>>>(1);
  note(cudaGetLastError());
  leaf<<<1, 2000>>>(1);
  note(cudaPeekAtLastError());
  note(cudaGetLastError());
  note(cudaGetLastError());
  narrow<<<1, 65>>>();
  note(cudaGetLastError());
  leaf<<<1, 1, 1 << 20>>>(1);
  note(cudaGetLastError());
  leaf<<<1, 1, 0, reinterpret_cast<cudaStream_t>(0x1234567)>>>(1);
  note(cudaGetLastError());
  cudaStream_t stream;
  note(cudaStreamCreateWithFlags(&stream, cudaStreamDefault));
  note(cudaGetLastError());
}

__global__ void many(int count) {
  for (int i = 0; i < count; ++i) leaf<<<1, 1>>>(0);
  note(cudaGetLastError());
}

__global__ void deep(unsigned level) {
  note(level);
  deep<<<1, 1>>>(level + 1);
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) note(error);
}

__global__ void ask(const cudaDeviceProp, int blocks_at_64) {
  cudaFuncAttributes attributes;
  note(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(narrow)));
  note(attributes.maxThreadsPerBlock);
  int value = 0;
  note(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 0));
  note(value);
  size_t limit = 0;
  note(cudaDeviceGetLimit(&limit, cudaLimitDevRuntimePendingLaunchCount));
  note(static_cast<unsigned>(limit));
  note(cudaGetDevice(&value));
  note(value);
  note(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&value, narrow, 64, 0));
  note(value == blocks_at_64);
  void* memory = nullptr;
  note(cudaMalloc(&memory, 1000));
  note(cudaFree(memory));
  note(cudaMalloc(&memory, size_t{1} << 40));
  printf("%s: %s\n", cudaGetErrorName(cudaGetLastError()), cudaGetErrorString(cudaSuccess));
}

__global__ void speak(int level) {
  printf("level %d speaks\n", level);
  if (level < 3) {
    speak<<<2, 1>>>(level + 1);
    leaf<<<1, 1>>>(level);
  }
}

__global__ void crash() { *reinterpret_cast<volatile int*>(16) = 1; }
__global__ void launch_crash() {
  leaf<<<1, 1>>>(1);
  crash<<<1, 1>>>();
  leaf<<<1, 1>>>(2);
}

namespace {

// Waits for the launched kernels, prints their log and clears it.
void show(const char* what) {
  MUST(cudaGetLastError());
  MUST(cudaDeviceSynchronize());
  unsigned count = 0;
  MUST(cudaMemcpyFromSymbol(&count, log_count, sizeof count));
  std::vector<unsigned> words(count < kLogWords ? count : kLogWords);
  if (!words.empty()) MUST(cudaMemcpyFromSymbol(words.data(), log_words, 4 * words.size()));
  std::printf("%s:", what);
  unsigned last = ~0u, times = 0;
  for (const unsigned word : words) {  // A run of equal words is one word.
    if (word == last) ++times;
    if (word != last && times > 0) std::printf(" (%u times more)", times);
    if (word != last) std::printf(" %u", word), times = 0;
    last = word;
  }
  if (times > 0) std::printf(" (%u times more)", times);
  std::printf("\n");
  count = 0;
  MUST(cudaMemcpyToSymbol(log_count, &count, sizeof count));
}

void show_sum() {
  constexpr int kCount = 1 << 12;
  std::vector<float> host(kCount);
  for (int i = 0; i < kCount; ++i) host[i] = static_cast<float>(i % 100);
  float expected = 0, result = -1, *a = nullptr, *b = nullptr, *out = nullptr;
  for (const float number : host) expected += number;
  MUST(cudaMalloc(&a, 4 * kCount));
  MUST(cudaMalloc(&b, 4 * kCount));
  MUST(cudaMalloc(&out, 4));
  MUST(cudaMemcpy(a, host.data(), 4 * kCount, cudaMemcpyHostToDevice));
  sum<<<1, 1>>>(a, b, kCount, out);
  MUST(cudaMemcpy(&result, out, 4, cudaMemcpyDeviceToHost));
  std::printf("sum: %s\n", result == expected ? "right" : "WRONG");
}

void show_memory() {
  int host[256] = {}, *out = nullptr, wrong = 0;
  MUST(cudaMalloc(&out, sizeof host));
  MUST(cudaMemset(out, 0x77, sizeof host));
  memory<<<1, 64>>>(out);
  MUST(cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 64; ++i) wrong += host[i] != (i < 40 ? 1001 * i : i);
  for (int i = 0; i < 40; ++i) wrong += host[130 + i] != 1001 * i;
  std::printf("memory: %d wrong; set:", wrong);
  for (const int i : {99, 100, 102, 103, 104}) std::printf(" %x", static_cast<unsigned>(host[i]));
  std::printf("; rows:");
  for (const int i : {110, 111, 112, 113, 114, 118, 119, 120, 122}) {
    std::printf(" %x", static_cast<unsigned>(host[i]));
  }
  std::printf("\n");
}

}  // namespace

int main() {
  tree<<<1, 1>>>();
  show("tree");
  show_sum();
  show_memory();
  wrong<<<1, 1>>>();
  show("wrong");
  many<<<1, 1>>>(2100);  // More than the limit, which is 2048 unless set.
  show("many");
  MUST(cudaDeviceSetLimit(cudaLimitDevRuntimePendingLaunchCount, 4000));
  many<<<1, 1>>>(2100);
  show("many more");
  deep<<<1, 1>>>(0);
  show("deep");
  cudaDeviceProp properties;
  int blocks = 0;
  MUST(cudaGetDeviceProperties(&properties, 0));
  MUST(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, narrow, 64, 0));
  ask<<<1, 1>>>(properties, blocks);
  show("ask");
  speak<<<1, 1>>>(0);
  show("speak");
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  branch<<<1, 1, 0, stream>>>(500);
  leaf<<<1, 1, 0, stream>>>(600);
  MUST(cudaStreamEndCapture(stream, &graph));
  MUST(cudaGraphInstantiate(&executable, graph, 0));
  MUST(cudaGraphLaunch(executable, stream));
  show("graph");
  launch_crash<<<1, 1>>>();
  std::printf("crash: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
  std::printf("PASSED\n");
  return 0;
}
