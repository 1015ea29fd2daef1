// Local answers of the runtime and driver API: values that the client library computes by itself
// (occupancy, attributes of functions and pointers) equal the driver's. Every line is the same with
// and without gpurun. Addresses are shown as distances.
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdio>

__global__ void plain() {}
__global__ void with_static(float* out) {
  __shared__ float values[1000];
  values[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = values[threadIdx.x ^ 1];
}
__global__ void with_odd_static(char* out) {
  __shared__ char values[4001];
  values[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = values[threadIdx.x ^ 1];
}
__global__ void __launch_bounds__(128, 4) bounded(float* out) {
  extern __shared__ float values[];
  values[threadIdx.x] = out[1];
  __syncthreads();
  out[0] = values[3];
}
__device__ int variable[100];
__constant__ int constant[10];

namespace {

// A result of 0 from a call that CUDA refuses differs only in its code.
#define SHOW(format, call, ...)                       \
  do {                                                \
    const int code = static_cast<int>(call);          \
    std::printf(" " format "/%d", __VA_ARGS__, code); \
    (void)cudaGetLastError();                         \
  } while (0)

std::size_t needs(int threads) { return static_cast<std::size_t>(threads) * 300; }

template <typename Kernel>
void occupancy(const char* name, Kernel kernel) {
  for (const int threads : {0, 1, 32, 33, 100, 128, 129, 256, 768, 1024, 1025}) {
    std::printf("%s, %d threads:", name, threads);
    for (const std::size_t bytes : {0u, 1u, 1000u, 7776u, 7777u, 20000u, 45151u, 45152u, 45153u,
                                    49152u, 49153u, 70000u, 70001u, 101376u, 101377u, 200000u}) {
      int blocks = -1;
      SHOW("%d", cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, bytes),
           blocks);
    }
    std::printf("\n");
  }
  for (const int threads : {32, 64, 128, 1024}) {
    std::printf("%s, dynamic memory of %d threads:", name, threads);
    for (int blocks = 1; blocks < 30; ++blocks) {
      std::size_t bytes = 1;
      SHOW("%zu", cudaOccupancyAvailableDynamicSMemPerBlock(&bytes, kernel, blocks, threads),
           bytes);
    }
    std::printf("\n");
  }
  std::printf("%s, best block:", name);
  for (const std::size_t bytes : {0u, 1000u, 20000u, 49152u, 49153u, 101376u}) {
    for (const int limit : {0, 32, 100, 200, 2000}) {
      int grid = -1, threads = -1;
      SHOW("%d*%d", cudaOccupancyMaxPotentialBlockSize(&grid, &threads, kernel, bytes, limit), grid,
           threads);
    }
  }
  int grid = -1, threads = -1;
  SHOW("%d*%d", cudaOccupancyMaxPotentialBlockSizeVariableSMem(&grid, &threads, kernel, needs),
       grid, threads);
  std::printf("\n");
}

template <typename Kernel>
void attributes(const char* name, Kernel kernel) {
  CUfunction function;
  if (cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(kernel)) != cudaSuccess) return;
  std::printf("%s, attributes:", name);
  for (int id = -1; id <= CU_FUNC_ATTRIBUTE_MAX + 1; ++id) {
    int value = -7;
    SHOW("%d", cuFuncGetAttribute(&value, static_cast<CUfunction_attribute>(id), function), value);
  }
  cudaFuncAttributes all = {};
  SHOW("%zu+%d of %d", cudaFuncGetAttributes(&all, kernel), all.sharedSizeBytes,
       all.maxDynamicSharedSizeBytes, all.maxThreadsPerBlock);
  std::printf("\n");
}

template <typename Kernel>
void set_dynamic(Kernel kernel, int bytes) {
  std::printf("set %d:", bytes);
  SHOW("%d", cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
       bytes);
  std::printf("\n");
}

// Not compared, because CUDA's manual does not define it (a variable's allocation, the context of a
// pool's memory) or because forwarded host memory is not mapped (docs/limitations.md).
enum class Leave { kNothing, kRange, kContext, kDevicePointer };

void pointer(const char* name, const void* at, Leave leave = Leave::kNothing) {
  const auto address = reinterpret_cast<CUdeviceptr>(at);
  std::printf("%s:", name);
  unsigned word = 0;
  SHOW("type %u", cuPointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address), word);
  for (const auto id : {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                        CU_POINTER_ATTRIBUTE_MAPPED, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE}) {
    word = 0;
    SHOW("%u", cuPointerGetAttribute(&word, id, address), word);
  }
  if (leave != Leave::kRange) {
    CUdeviceptr base = address;
    std::size_t bytes = 0;
    SHOW("start -%llu",
         cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address),
         address - base);
    SHOW("%zu", cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address), bytes);
    base = address, bytes = 0;
    const CUresult range = cuMemGetAddressRange(&base, &bytes, address);
    const bool none = base == 0 && address != 0;  // It was set, but not to a place in memory.
    SHOW("range -%llu of %zu", range, none ? 999'999ull : address - base, bytes);
  }
  if (leave != Leave::kContext) {
    CUcontext of = nullptr, current = nullptr;
    cuCtxGetCurrent(&current);
    SHOW("own context %d", cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, address),
         of == current);
  }
  void* same = nullptr;
  SHOW("host %d", cuPointerGetAttribute(&same, CU_POINTER_ATTRIBUTE_HOST_POINTER, address),
       same == at);
  cudaPointerAttributes all = {};
  SHOW("type %d of %d, host %d", cudaPointerGetAttributes(&all, at), all.type, all.device,
       all.hostPointer == at);
  if (leave != Leave::kDevicePointer) {
    same = nullptr;
    SHOW("device %d", cuPointerGetAttribute(&same, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address),
         same == at);
    std::printf(" %d", all.devicePointer == at);
  }
  std::printf("\n");
}

}  // namespace

int main() {
  cudaFree(nullptr);
  occupancy("plain", plain);
  occupancy("static", with_static);
  occupancy("odd static", with_odd_static);
  occupancy("bounded", bounded);
  attributes("plain", plain);
  attributes("static", with_static);
  attributes("bounded", bounded);
  set_dynamic(bounded, 70000);
  set_dynamic(with_odd_static, 97375);
  set_dynamic(with_static, 101376);  // More than remains beside the static part.
  set_dynamic(plain, 100);
  set_dynamic(plain, -1);
  attributes("bounded, set", bounded);
  attributes("static, not set", with_static);
  occupancy("bounded, set", bounded);
  occupancy("odd static, set", with_odd_static);
  occupancy("plain, set to less", plain);

  char *memory = nullptr, *pinned = nullptr, *pooled = nullptr;
  int *symbol = nullptr, *fixed = nullptr;
  static char ordinary[64];
  cudaMalloc(&memory, 1000);
  cudaMallocHost(&pinned, 5000);
  cudaMallocAsync(&pooled, 3000, nullptr);
  cudaGetSymbolAddress(reinterpret_cast<void**>(&symbol), variable);
  cudaGetSymbolAddress(reinterpret_cast<void**>(&fixed), constant);
  pointer("device", memory);
  pointer("device, inside", memory + 999);
  pointer("pinned", pinned, Leave::kDevicePointer);
  pointer("pinned, inside", pinned + 4999, Leave::kDevicePointer);
  pointer("pool", pooled, Leave::kContext);
  pointer("variable", symbol + 5, Leave::kRange);
  pointer("constant", fixed, Leave::kRange);
  pointer("ordinary", ordinary);
  pointer("null", nullptr);
  cudaFree(memory);
  pointer("freed", memory);
  std::printf("PASSED\n");
  return 0;
}
