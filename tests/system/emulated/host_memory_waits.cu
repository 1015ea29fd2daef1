// Fills and copies of memory that the host also sees, pinned or managed: the synchronous forms
// return after the work, and the Async forms before it (manual, "API synchronization behavior").
// Prints "ok" when all is right.
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <sched.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>

#include "tests/support/cuda.h"

namespace {

__managed__ unsigned char variable[4096];
constexpr size_t kBytes = 4096;

// Runs in the stream before the call. Ends when the call has returned, or after enough time for
// that.
std::atomic<bool> returned, passed;
void stand(void*) {
  for (int i = 0; i < 20000 && !returned.load(); ++i) sched_yield();
  passed = true;
}

int faults = 0;
// Returns whether the call waited for earlier work of the stream.
bool waits(const std::function<cudaError_t()>& call, cudaStream_t stream = nullptr) {
  returned = passed = false;
  if (cudaLaunchHostFunc(stream, stand, nullptr) != cudaSuccess) return false;
  const cudaError_t error = call();
  const bool waited = passed;
  returned = true;
  if (error != cudaSuccess || cudaDeviceSynchronize() != cudaSuccess) {
    std::printf("failed: %s\n", cudaGetErrorString(error));
    ++faults;
  }
  return waited;
}
void expect(bool right, const char* what, const char* memory) {
  if (right) return;
  std::printf("wrong: %s, %s\n", what, memory);
  ++faults;
}

CUdeviceptr number(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }
// A driver function, which the program does not link.
template <class Function>
Function* driver_function(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  return reinterpret_cast<Function*>(dlsym(library, name));
}
// The header's macros name the newest version of each.
#define GPURUN_TEXT(name) #name
#define DRIVER(name) driver_function<decltype(name)>(GPURUN_TEXT(name))
cudaError_t driver(CUresult result) {
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorUnknown;
}

// Fills of memory that the host sees.
void fills(unsigned char* at, const char* memory, cudaStream_t stream) {
  expect(waits([=] { return cudaMemset(at, 1, kBytes); }) && at[kBytes - 1] == 1, "memset", memory);
  expect(waits([=] { return cudaMemset2D(at, 64, 2, 32, 64); }) && at[63 * 64 + 31] == 2,
         "memset 2D", memory);
  const cudaPitchedPtr box = make_cudaPitchedPtr(at, 64, 64, 8);
  expect(
      waits([=] { return cudaMemset3D(box, 3, make_cudaExtent(64, 8, 8)); }) && at[kBytes - 1] == 3,
      "memset 3D", memory);
  expect(waits([=] { return driver(DRIVER(cuMemsetD32)(number(at), 0x04040404, kBytes / 4)); }) &&
             at[kBytes - 1] == 4,
         "memset of words", memory);
  expect(
      !waits([=] { return cudaMemsetAsync(at, 5, kBytes, stream); }, stream) && at[kBytes - 1] == 5,
      "memset, asynchronous", memory);
  expect(!waits([=] { return cudaMemset2DAsync(at, 64, 6, 32, 64, stream); }, stream) &&
             at[63 * 64 + 31] == 6,
         "memset 2D, asynchronous", memory);
}

void copies(unsigned char* at, unsigned char* device, const char* memory, cudaStream_t stream) {
  expect(waits([=] { return cudaMemcpy(at, device, kBytes, cudaMemcpyDefault); }) &&
             at[kBytes - 1] == 7,
         "copy from the device", memory);
  std::memset(at, 8, kBytes);
  expect(waits([=] { return cudaMemcpy(at, device, kBytes, cudaMemcpyDeviceToDevice); }) &&
             at[kBytes - 1] == 7,
         "copy from the device by device addresses", memory);
  expect(waits([=] { return driver(DRIVER(cuMemcpyDtoD)(number(device), number(at), kBytes)); }),
         "copy to the device by device addresses", memory);
  expect(waits([=] { return cudaMemcpyPeer(device, 0, at, 0, kBytes); }), "copy between contexts",
         memory);
  expect(waits([=] { return cudaMemcpy2D(at, 64, device, 64, 32, 64, cudaMemcpyDefault); }),
         "copy 2D", memory);
  CUDA_ARRAY_DESCRIPTOR form = {kBytes, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1};
  CUarray array = nullptr;
  expect(DRIVER(cuArrayCreate)(&array, &form) == CUDA_SUCCESS, "an array", memory);
  expect(waits([=] { return driver(DRIVER(cuMemcpyDtoA)(array, 0, number(at), kBytes)); }),
         "copy to an array", memory);
  expect(waits([=] { return driver(DRIVER(cuMemcpyAtoD)(number(at), array, 0, kBytes)); }),
         "copy from an array", memory);
  expect(!waits([=] { return cudaMemcpyAsync(at, device, kBytes, cudaMemcpyDefault, stream); },
                stream),
         "copy, asynchronous", memory);
}

}  // namespace

// With an argument no managed variable is used, and gpurun can carry the rest.
int main() {
  unsigned char *managed = nullptr, *pinned = nullptr, *device = nullptr;
  cudaStream_t stream = nullptr;
  MUST(cudaStreamCreate(&stream));
  MUST(cudaMallocManaged(&managed, kBytes));
  MUST(cudaMallocHost(&pinned, kBytes));
  MUST(cudaMalloc(&device, 2 * kBytes));
  fills(managed, "managed", stream);
  fills(pinned, "pinned", stream);
  fills(variable, "a managed variable", stream);
  MUST(cudaMemset(device, 7, 2 * kBytes));
  copies(managed, device, "managed", stream);
  copies(pinned, device, "pinned", stream);
  expect(!waits([=] { return cudaMemset(device, 1, kBytes); }), "memset", "of the device");
  expect(
      !waits([=] { return cudaMemcpy(device + kBytes, device, kBytes, cudaMemcpyDeviceToDevice); }),
      "copy", "within the device");
  if (faults == 0) std::puts("ok");
  return faults != 0;
}
