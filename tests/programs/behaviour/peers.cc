// Driver API: two devices of one server. Which one can reach which, kernels that write the other's
// memory, copies between the two in the order of both contexts' work, and the errors of invalid
// calls.
#include "driver_test.h"

namespace {

using cuda_check::name_of;

constexpr unsigned kCount = 50'000;

struct Side {
  CUdevice device;
  CUcontext context;
  CUfunction fill, linger;
  CUdeviceptr memory;

  Side(int ordinal, const char* image) : device(ordinal) {
    CUmodule module;
    MUST(cuCtxCreate(&context, nullptr, 0, device));
    MUST(cuModuleLoad(&module, image));
    MUST(cuModuleGetFunction(&fill, module, "fill"));
    MUST(cuModuleGetFunction(&linger, module, "linger"));
    MUST(cuMemAlloc(&memory, kCount * 4));
  }
  void current() const { MUST(cuCtxSetCurrent(context)); }
  // On this device: value + i into each, and a tenth of a second later `late` into the first.
  void write(CUdeviceptr to, unsigned value, unsigned late) const {
    unsigned count = kCount, turns = 50'000'000;
    void* filled[] = {&to, &count, &value};
    MUST(cuLaunchKernel(fill, (kCount + 255) / 256, 1, 1, 256, 1, 1, 0, nullptr, filled, nullptr));
    void* lingers[] = {&turns, &to, &late};
    MUST(cuLaunchKernel(linger, 1, 1, 1, 1, 1, 1, 0, nullptr, lingers, nullptr));
  }
};

void expect_values(CUdeviceptr memory, unsigned value, unsigned first) {
  unsigned* const values = new unsigned[kCount];
  MUST(cuMemcpyDtoH(values, memory, kCount * 4));
  EXPECT(values[0] == first && values[1] == value + 1 && values[kCount - 1] == value + kCount - 1);
  delete[] values;
}

void questions() {
  int can = -1;
  MUST(cuDeviceCanAccessPeer(&can, 0, 1));
  EXPECT(can == 1);
  MUST(cuDeviceCanAccessPeer(&can, 1, 0));
  EXPECT(can == 1);
  MUST(cuDeviceCanAccessPeer(&can, 1, 1));
  EXPECT(can == 0);
  MUST_BE(CUDA_ERROR_INVALID_DEVICE, cuDeviceCanAccessPeer(&can, 0, 2));
  MUST_BE(CUDA_ERROR_INVALID_VALUE, cuDeviceCanAccessPeer(nullptr, 0, 1));
  int value = -1;
  MUST(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
  EXPECT(value == 1);
  MUST(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, 1, 0));
  MUST(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, 0, 1));
  MUST_BE(CUDA_ERROR_INVALID_DEVICE,
          cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0));
  MUST_BE(CUDA_ERROR_INVALID_DEVICE,
          cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 7));
  MUST_BE(CUDA_ERROR_INVALID_VALUE,
          cuDeviceGetP2PAttribute(nullptr, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
}

void access(const Side& here, const Side& there) {
  here.current();
  int ordinal = -1;
  MUST(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, there.memory + 40));
  EXPECT(ordinal == there.device);
  CUcontext owner = nullptr;
  MUST(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, there.memory + 40));
  EXPECT(owner == there.context);
  MUST_BE(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(there.context));
  MUST_BE(CUDA_ERROR_INVALID_VALUE, cuCtxEnablePeerAccess(there.context, 1));
  MUST(cuCtxEnablePeerAccess(there.context, 0));
  MUST_BE(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(there.context, 0));
  here.write(there.memory, 700, 3);
  MUST(cuCtxSynchronize());
  there.current();
  expect_values(there.memory, 700, 3);
  here.current();
  MUST(cuCtxDisablePeerAccess(there.context));
  MUST_BE(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(there.context));
}

// The copy comes after the earlier work of both contexts, and before their later work.
void copies(const Side& here, const Side& there, unsigned value) {
  here.current();
  here.write(here.memory, value, value + 5);
  there.current();
  MUST(cuMemcpyPeer(there.memory, there.context, here.memory, here.context, kCount * 4));
  there.write(here.memory, value + 9, 1);  // Also after it.
  expect_values(there.memory, value, value + 5);
  MUST(cuCtxSynchronize());
  expect_values(here.memory, value + 9, 1);

  here.current();
  CUstream stream;
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  MUST(cuMemsetD32Async(here.memory, value, kCount, stream));
  MUST(cuMemcpyPeerAsync(there.memory, there.context, here.memory, here.context, kCount * 4,
                         stream));
  MUST(cuMemsetD32Async(here.memory, 0, kCount, stream));
  MUST(cuStreamSynchronize(stream));
  there.current();
  unsigned last = 0;
  MUST(cuMemcpyDtoH(&last, there.memory + 4 * (kCount - 1), 4));
  EXPECT(last == value);
  MUST_BE(CUDA_ERROR_INVALID_VALUE,
          cuMemcpyPeer(there.memory, there.context, here.memory, here.context, kCount * 4 + 4));
}

}  // namespace

int main(int argc, char** argv) {
  EXPECT(argc == 2);
  end_after(100);
  MUST(cuInit(0));
  questions();
  const Side first(0, argv[1]), second(1, argv[1]);
  second.current();
  MUST_BE(CUDA_ERROR_INVALID_DEVICE, cuCtxEnablePeerAccess(second.context, 0));
  access(first, second);
  access(second, first);
  copies(first, second, 100'000);
  copies(second, first, 200'000);
  std::printf("PASSED\n");
  return 0;
}
