// any_runtime LIBCUDART: a program on any of NVIDIA's shared runtimes (CUDA 11 to 13). It does the
// start-up of nvcc's programs and then a bit of everything: devices, memory, copies in each
// direction, streams, events, kernels, constants, occupancy, graphs, errors, a reset. Prints its
// results. Its last line is PASSED, or FAILED with the failed call.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/programs/runtimes/image.h"
#include "tests/programs/runtimes/runtime.h"
#include "tests/support/cuda.h"

namespace {

constexpr int kCount = 1000;
constexpr int kThreads = 128;
constexpr int kBlocks = (kCount + kThreads - 1) / kThreads;
constexpr float kFactor = 3;
constexpr int kNonBlocking = 1;
constexpr int kThreadLocalCapture = 1;

// Host addresses that identify kernels and variables to the runtime. Any unique address works.
char scale_add_host, block_sum_host, factor_host;
char scale_add_name[] = "scale_add", block_sum_name[] = "block_sum", factor_name[] = "factor";
FatbinWrapper wrapper;

// As in nvcc's start-up code for one source file.
void** register_code(const Runtime& cuda) {
  wrapper = {0x466243b1, 1, fat_binary(), nullptr};
  void** const handle = cuda.__cudaRegisterFatBinary(&wrapper);
  cuda.__cudaRegisterFunction(handle, &scale_add_host, scale_add_name, scale_add_name, -1, nullptr,
                              nullptr, nullptr, nullptr, nullptr);
  cuda.__cudaRegisterFunction(handle, &block_sum_host, block_sum_name, block_sum_name, -1, nullptr,
                              nullptr, nullptr, nullptr, nullptr);
  cuda.__cudaRegisterVar(handle, &factor_host, factor_name, factor_name, 0, sizeof(float), 1, 0);
  cuda.__cudaRegisterFatBinaryEnd(handle);
  return handle;
}

void ask_devices(const Runtime& cuda) {
  int driver = 0, count = 0, device = -1, warp = 0;
  MUST(cuda.cudaDriverGetVersion(&driver));
  std::printf("runtime %d, driver %d\n", cuda.version(), driver);
  MUST(cuda.cudaGetDeviceCount(&count));
  EXPECT(count >= 1);
  MUST(cuda.cudaSetDevice(0));
  MUST(cuda.cudaGetDevice(&device));
  EXPECT(device == 0);
  std::vector<char> properties(8192);
  MUST(cuda.properties(properties.data(), 0));
  std::size_t total = 0, free_bytes = 0, all = 0;
  std::memcpy(&total, properties.data() + 288, sizeof total);  // totalGlobalMem, of 11, 12, 13.
  MUST(cuda.cudaMemGetInfo(&free_bytes, &all));
  EXPECT(total == all && free_bytes <= all);
  constexpr int kWarpSize = 10;  // cudaDevAttrWarpSize.
  MUST(cuda.cudaDeviceGetAttribute(&warp, kWarpSize, 0));
  EXPECT(warp == 32);
  std::printf("%d device(s), the first: %s, %zu bytes\n", count, properties.data(), total);
}

// out = factor * in + out, once for each call. The kCount floats of `in` count up from 0.
void launch_scale_add(const Runtime& cuda, float* out, float* in, Stream stream) {
  int count = kCount;
  void* arguments[] = {&out, &in, &count};
  MUST(cuda.cudaLaunchKernel(&scale_add_host, {kBlocks}, {kThreads}, arguments, 0, stream));
}

std::vector<float> counting() {
  std::vector<float> values(kCount);
  for (int i = 0; i < kCount; ++i) values[i] = static_cast<float>(i);
  return values;
}

void expect_multiple(const std::vector<float>& values, float multiple) {
  for (int i = 0; i < kCount; ++i) {
    if (values[i] != multiple * static_cast<float>(i))
      cuda_check::fail(__FILE__, __LINE__, "a value of the kernel", std::to_string(i).c_str());
  }
}

void compute(const Runtime& cuda) {
  const std::vector<float> in = counting();
  std::vector<float> out(kCount);
  const std::size_t bytes = kCount * sizeof(float);
  float *device_in = nullptr, *device_out = nullptr, *sums = nullptr;
  MUST(cuda.cudaMalloc(reinterpret_cast<void**>(&device_in), bytes));
  MUST(cuda.cudaMalloc(reinterpret_cast<void**>(&device_out), bytes));
  MUST(cuda.cudaMalloc(reinterpret_cast<void**>(&sums), kBlocks * sizeof(float)));
  MUST(cuda.cudaMemcpyToSymbol(&factor_host, &kFactor, sizeof kFactor, 0, kHostToDevice));
  MUST(cuda.cudaMemcpy(device_in, in.data(), bytes, kHostToDevice));
  MUST(cuda.cudaMemset(device_out, 0, bytes));
  launch_scale_add(cuda, device_out, device_in, nullptr);
  MUST(cuda.cudaGetLastError());
  MUST(cuda.cudaDeviceSynchronize());
  MUST(cuda.cudaMemcpy(out.data(), device_out, bytes, kDeviceToHost));
  expect_multiple(out, kFactor);

  int count = kCount;
  void* arguments[] = {&sums, &device_in, &count};
  MUST(cuda.cudaLaunchKernel(&block_sum_host, {kBlocks}, {kThreads}, arguments, 0, nullptr));
  std::vector<float> block_sums(kBlocks);
  MUST(cuda.cudaMemcpy(block_sums.data(), sums, kBlocks * sizeof(float), kDeviceToHost));
  float sum = 0;
  for (const float each : block_sums) sum += each;
  EXPECT(sum == kCount * (kCount - 1) / 2);

  // The first 10 of each 100 values, as rows of a box.
  std::vector<float> box(100);
  MUST(cuda.cudaMemcpy2D(box.data(), 40, device_in, 400, 40, 10, kDeviceToHost));
  EXPECT(box[0] == 0 && box[10] == 100 && box[99] == 909);
  MUST(cuda.cudaFree(device_in));
  MUST(cuda.cudaFree(device_out));
  MUST(cuda.cudaFree(sums));
  std::printf("copies, kernels, constants\n");
}

void count_call(void* calls) { ++*static_cast<int*>(calls); }

// Two streams with a handover by an event, pinned memory, memory of the stream, and a graph.
void use_streams(const Runtime& cuda) {
  const std::size_t bytes = kCount * sizeof(float);
  Stream first = nullptr, second = nullptr;
  Event begun = nullptr, copied = nullptr;
  float *pinned = nullptr, *in = nullptr, *out = nullptr;
  MUST(cuda.cudaStreamCreateWithFlags(&first, kNonBlocking));
  MUST(cuda.cudaStreamCreateWithFlags(&second, kNonBlocking));
  MUST(cuda.cudaEventCreate(&begun));
  MUST(cuda.cudaEventCreate(&copied));
  MUST(cuda.cudaMallocHost(reinterpret_cast<void**>(&pinned), bytes));
  MUST(cuda.cudaMalloc(reinterpret_cast<void**>(&in), bytes));
  std::memcpy(pinned, counting().data(), bytes);
  MUST(cuda.cudaEventRecord(begun, first));
  MUST(cuda.cudaMemcpyAsync(in, pinned, bytes, kHostToDevice, first));
  MUST(cuda.cudaEventRecord(copied, first));
  MUST(cuda.cudaStreamWaitEvent(second, copied, 0));
  MUST(cuda.cudaMallocAsync(reinterpret_cast<void**>(&out), bytes, second));
  MUST(cuda.cudaMemsetAsync(out, 0, bytes, second));

  int calls = 0;
  Graph graph = nullptr;
  GraphExec exec = nullptr;
  MUST(cuda.cudaStreamBeginCapture(second, kThreadLocalCapture));
  launch_scale_add(cuda, out, in, second);
  launch_scale_add(cuda, out, in, second);
  MUST(cuda.cudaLaunchHostFunc(second, count_call, &calls));
  MUST(cuda.cudaStreamEndCapture(second, &graph));
  MUST(cuda.instantiate(&exec, graph));
  for (int i = 0; i < 3; ++i) MUST(cuda.cudaGraphLaunch(exec, second));
  MUST(cuda.cudaLaunchHostFunc(second, count_call, &calls));
  MUST(cuda.cudaStreamSynchronize(first));
  MUST(cuda.cudaMemcpyAsync(pinned, out, bytes, kDeviceToHost, second));
  MUST(cuda.cudaFreeAsync(out, second));
  MUST(cuda.cudaStreamSynchronize(second));
  MUST(cuda.cudaStreamQuery(second));
  expect_multiple(std::vector<float>(pinned, pinned + kCount), 6 * kFactor);
  EXPECT(calls == 4);
  float elapsed_ms = -1;
  MUST(cuda.cudaEventSynchronize(copied));
  MUST(cuda.cudaEventQuery(copied));
  MUST(cuda.cudaEventElapsedTime(&elapsed_ms, begun, copied));
  EXPECT(elapsed_ms >= 0);
  MUST(cuda.cudaGraphExecDestroy(exec));
  MUST(cuda.cudaGraphDestroy(graph));
  MUST(cuda.cudaEventDestroy(begun));
  MUST(cuda.cudaEventDestroy(copied));
  MUST(cuda.cudaStreamDestroy(first));
  MUST(cuda.cudaStreamDestroy(second));
  MUST(cuda.cudaFree(in));
  MUST(cuda.cudaFreeHost(pinned));
  std::printf("streams, events, pinned memory, host functions, a graph\n");
}

void ask_kernels(const Runtime& cuda) {
  struct {
    std::size_t shared_bytes, constant_bytes, local_bytes;
    int threads_max, registers, ptx_version;
    char rest[512];
  } attributes = {};
  MUST(cuda.cudaFuncGetAttributes(&attributes, &block_sum_host));
  EXPECT(attributes.shared_bytes == 512 && attributes.threads_max >= kThreads);
  EXPECT(attributes.ptx_version == 52);
  int blocks = 0;
  MUST(cuda.cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, &block_sum_host, kThreads, 0));
  EXPECT(blocks >= 1);
  std::printf("block_sum: %zu bytes shared, %d blocks on a multiprocessor\n",
              attributes.shared_bytes, blocks);
}

void make_errors(const Runtime& cuda) {
  constexpr int kInvalidValue = 1, kOutOfMemory = 2, kInvalidConfiguration = 9;
  constexpr int kInvalidDirection = 21, kInvalidDevice = 101;
  void* nothing = nullptr;
  float value = 0;
  int count = 0;
  void* arguments[] = {&nothing, &nothing, &count};
  EXPECT(cuda.cudaMalloc(&nothing, std::size_t{1} << 50) == kOutOfMemory);
  EXPECT(cuda.cudaPeekAtLastError() == kOutOfMemory && cuda.cudaGetLastError() == kOutOfMemory);
  EXPECT(cuda.cudaGetLastError() == 0);
  EXPECT(cuda.cudaMemcpy(&value, &value, 4, kNoSuchKind) == kInvalidDirection);
  EXPECT(cuda.cudaSetDevice(9999) == kInvalidDevice);
  const int launched =
      cuda.cudaLaunchKernel(&scale_add_host, {1}, {1 << 20}, arguments, 0, nullptr);
  EXPECT(launched == kInvalidConfiguration || launched == kInvalidValue);
  (void)cuda.cudaGetLastError();
  std::printf("%s: %s\n", cuda.cudaGetErrorName(kOutOfMemory),
              cuda.cudaGetErrorString(kOutOfMemory));
  std::printf("%s: %s\n", cuda.cudaGetErrorName(kInvalidDirection),
              cuda.cudaGetErrorString(kInvalidDirection));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::printf("usage: any_runtime LIBCUDART\n");
    return 2;
  }
  const Runtime cuda(argv[1]);
  void** const code = register_code(cuda);
  ask_devices(cuda);
  compute(cuda);
  use_streams(cuda);
  ask_kernels(cuda);
  make_errors(cuda);
  MUST(cuda.cudaDeviceReset());
  compute(cuda);  // A new context, with the code and the constants loaded anew.
  MUST(cuda.cudaDeviceReset());
  cuda.__cudaUnregisterFatBinary(code);
  std::printf("PASSED\n");
  return 0;
}
