// Driver API: several contexts, their stack in each thread, and the objects that end with them.
#include <cuda.h>

#include <thread>
#include <vector>

#include "tests/support/cuda.h"

using cuda_check::name_of;

static unsigned type_of(CUdeviceptr address) {
  CUpointer_attribute which = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
  unsigned type = 7;
  void* place = &type;
  MUST(cuPointerGetAttributes(1, &which, &place, address));
  return type;
}

int main() {
  MUST(cuInit(0));
  CUdevice device;
  MUST(cuDeviceGet(&device, 0));
  CUcontext current = nullptr;
  MUST(cuCtxGetCurrent(&current));
  EXPECT(current == nullptr);
  CUdeviceptr memory;
  std::printf("no context: %s\n", name_of(cuMemAlloc(&memory, 16)));

  std::vector<CUcontext> contexts(5);
  for (CUcontext& context : contexts) MUST(cuCtxCreate(&context, nullptr, 0, device));
  MUST(cuCtxGetCurrent(&current));
  EXPECT(current == contexts.back());
  for (std::size_t i = contexts.size(); i-- > 0;) {  // Creation pushed each.
    CUcontext popped;
    MUST(cuCtxPopCurrent(&popped));
    EXPECT(popped == contexts[i]);
  }
  CUcontext popped;
  std::printf("empty stack: %s\n", name_of(cuCtxPopCurrent(&popped)));

  std::vector<std::thread> threads;
  std::vector<unsigned> results(contexts.size());
  for (std::size_t i = 0; i < contexts.size(); ++i) {
    threads.emplace_back([&, i] {
      MUST(cuCtxPushCurrent(contexts[i]));
      CUdeviceptr mine;
      MUST(cuMemAlloc(&mine, 4096));
      MUST(cuMemsetD32(mine, static_cast<unsigned>(i) + 1, 1024));
      unsigned last = 0;
      MUST(cuMemcpyDtoH(&last, mine + 4092, 4));
      results[i] = last;
      CUcontext owner = nullptr;
      MUST(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, mine));
      EXPECT(owner == contexts[i]);
      MUST(cuCtxSynchronize());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < results.size(); ++i) EXPECT(results[i] == i + 1);

  CUcontext primary;
  MUST(cuDevicePrimaryCtxRetain(&primary, device));
  unsigned flags = 0;
  int active = 0;
  MUST(cuDevicePrimaryCtxGetState(device, &flags, &active));
  EXPECT(active == 1);
  MUST(cuCtxSetCurrent(primary));
  CUstream stream;
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUcontext of_stream;
  MUST(cuStreamGetCtx(stream, &of_stream));
  EXPECT(of_stream == primary);
  MUST(cuStreamDestroy(stream));

  // Addresses mean the same in every context. A thread without a context may query their
  // attributes, and whether an event is complete.
  CUdeviceptr on_device;
  void* pinned = nullptr;
  int pageable = 0;
  MUST(cuMemAlloc(&on_device, 4096));
  MUST(cuMemAllocHost(&pinned, 4096));
  CUevent event;
  MUST(cuEventCreate(&event, 0));
  MUST(cuEventRecord(event, nullptr));
  MUST(cuCtxSynchronize());
  std::thread([&] {
    CUcontext none = primary;
    MUST(cuCtxGetCurrent(&none));
    EXPECT(none == nullptr);
    EXPECT(type_of(on_device) == CU_MEMORYTYPE_DEVICE);
    EXPECT(type_of(reinterpret_cast<CUdeviceptr>(pinned)) == CU_MEMORYTYPE_HOST);
    EXPECT(type_of(reinterpret_cast<CUdeviceptr>(&pageable)) == 0);
    CUcontext owner = nullptr;
    MUST(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, on_device));
    EXPECT(owner == primary);
    MUST(cuEventQuery(event));
  }).join();
  MUST(cuEventDestroy(event));
  MUST(cuMemFreeHost(pinned));
  MUST(cuMemFree(on_device));
  MUST(cuDevicePrimaryCtxRelease(device));
  MUST(cuDevicePrimaryCtxGetState(device, &flags, &active));
  EXPECT(active == 0);
  // A reset ends everything in the context, which must still be released (manual).
  MUST(cuDevicePrimaryCtxRetain(&primary, device));
  MUST(cuDevicePrimaryCtxReset(device));
  MUST(cuDevicePrimaryCtxGetState(device, &flags, &active));
  EXPECT(active == 0);
  MUST(cuDevicePrimaryCtxRelease(device));
  EXPECT(cuDevicePrimaryCtxRelease(device) == CUDA_ERROR_INVALID_CONTEXT);
  for (CUcontext context : contexts) MUST(cuCtxDestroy(context));
  std::printf("destroyed context: %s\n", name_of(cuCtxSetCurrent(contexts[0])));
  std::printf("PASSED\n");
  return 0;
}
