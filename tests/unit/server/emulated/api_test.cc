// The emulated device's driver API below its exported names: order of streams, exact memory bounds,
// and wrong calls answered with a code. What breaks here breaks every program on the device.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "driver_abi/cuda_abi.h"

namespace gpurun::emulated::api {
CUresult cuInit(unsigned int);
CUresult cuDeviceGetCount(int*);
CUresult cuDevicePrimaryCtxRetain(CUcontext*, CUdevice);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuCtxSynchronize(void);
CUresult cuMemAlloc_v2(CUdeviceptr*, size_t);
CUresult cuMemFree_v2(CUdeviceptr);
CUresult cuMemGetInfo_v2(size_t*, size_t*);
CUresult cuMemcpyHtoD_v2(CUdeviceptr, const void*, size_t);
CUresult cuMemcpyDtoH_v2(void*, CUdeviceptr, size_t);
CUresult cuMemsetD32Async(CUdeviceptr, unsigned int, size_t, CUstream);
CUresult cuStreamCreate(CUstream*, unsigned int);
CUresult cuStreamDestroy_v2(CUstream);
CUresult cuStreamQuery(CUstream);
CUresult cuStreamSynchronize(CUstream);
CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned int);
CUresult cuStreamWriteValue32_v2(CUstream, CUdeviceptr, cuuint32_t, unsigned int);
CUresult cuStreamWaitValue32_v2(CUstream, CUdeviceptr, cuuint32_t, unsigned int);
CUresult cuEventCreate(CUevent*, unsigned int);
CUresult cuEventRecord(CUevent, CUstream);
CUresult cuEventQuery(CUevent);
CUresult cuLaunchHostFunc(CUstream, CUhostFn, void*);
CUresult cuMemAddressReserve(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long);
CUresult cuMemCreate(CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*,
                     unsigned long long);
CUresult cuMemMap(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t);
CUresult cuMemUnmap(CUdeviceptr, size_t);
CUresult cuMemRelease(CUmemGenericAllocationHandle);
CUresult cuMemAddressFree(CUdeviceptr, size_t);

namespace {

class EmulatedApi : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(api::cuInit(0), CUDA_SUCCESS);
    ASSERT_EQ(api::cuDevicePrimaryCtxRetain(&context_, 0), CUDA_SUCCESS);
    ASSERT_EQ(api::cuCtxSetCurrent(context_), CUDA_SUCCESS);
  }
  CUcontext context_ = nullptr;
};

// Opened by the test to let a stream go on.
void wait_for_gate(void* gate) { static_cast<std::atomic<bool>*>(gate)->wait(false); }
void open(std::atomic<bool>& gate) {
  gate = true;
  gate.notify_all();
}

TEST_F(EmulatedApi, ACopyPastTheEndOfAnAllocationIsRefused) {
  CUdeviceptr memory = 0;
  ASSERT_EQ(api::cuMemAlloc_v2(&memory, 1000), CUDA_SUCCESS);
  std::vector<char> host(2000, 7);
  EXPECT_EQ(api::cuMemcpyHtoD_v2(memory, host.data(), 1000), CUDA_SUCCESS);
  EXPECT_EQ(api::cuMemcpyHtoD_v2(memory, host.data(), 1001), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api::cuMemcpyHtoD_v2(memory + 1, host.data(), 1000), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api::cuMemFree_v2(memory + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api::cuMemFree_v2(memory), CUDA_SUCCESS);
  EXPECT_EQ(api::cuMemFree_v2(memory), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(EmulatedApi, MemoryEndsExactlyWhereTheDeviceSaysItDoes) {
  size_t free_bytes = 0, total = 0;
  ASSERT_EQ(api::cuMemGetInfo_v2(&free_bytes, &total), CUDA_SUCCESS);
  CUdeviceptr all = 0, more = 0;
  EXPECT_EQ(api::cuMemAlloc_v2(&all, free_bytes + 1), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(api::cuMemAlloc_v2(&all, free_bytes), CUDA_SUCCESS);
  EXPECT_EQ(api::cuMemAlloc_v2(&more, 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(api::cuMemFree_v2(all), CUDA_SUCCESS);
}

TEST_F(EmulatedApi, AStreamRunsBehindTheCallersBackAndAnotherWaitsForItsEvent) {
  CUstream first, second;
  CUevent event;
  ASSERT_EQ(api::cuStreamCreate(&first, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(api::cuStreamCreate(&second, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(api::cuEventCreate(&event, 0), CUDA_SUCCESS);
  CUdeviceptr memory = 0;
  ASSERT_EQ(api::cuMemAlloc_v2(&memory, 4096), CUDA_SUCCESS);
  std::atomic<bool> gate{false};
  ASSERT_EQ(api::cuLaunchHostFunc(first, wait_for_gate, &gate), CUDA_SUCCESS);
  ASSERT_EQ(api::cuMemsetD32Async(memory, 1, 1024, first), CUDA_SUCCESS);
  ASSERT_EQ(api::cuEventRecord(event, first), CUDA_SUCCESS);
  ASSERT_EQ(api::cuStreamWaitEvent(second, event, 0), CUDA_SUCCESS);
  ASSERT_EQ(api::cuMemsetD32Async(memory, 2, 1024, second), CUDA_SUCCESS);
  // Streams that depend on nothing come and go meanwhile: time enough to overtake, were it
  // possible.
  for (int i = 0; i < 100; ++i) {
    CUstream free_stream;
    ASSERT_EQ(api::cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    std::atomic<bool> open_gate{true};
    ASSERT_EQ(api::cuLaunchHostFunc(free_stream, wait_for_gate, &open_gate), CUDA_SUCCESS);
    ASSERT_EQ(api::cuStreamSynchronize(free_stream), CUDA_SUCCESS);
    ASSERT_EQ(api::cuStreamDestroy_v2(free_stream), CUDA_SUCCESS);
  }
  EXPECT_EQ(api::cuEventQuery(event), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(api::cuStreamQuery(second), CUDA_ERROR_NOT_READY);
  open(gate);
  EXPECT_EQ(api::cuStreamSynchronize(second), CUDA_SUCCESS);
  std::vector<unsigned> host(1024);
  ASSERT_EQ(api::cuMemcpyDtoH_v2(host.data(), memory, 4096), CUDA_SUCCESS);
  EXPECT_EQ(host, std::vector<unsigned>(1024, 2));
  EXPECT_EQ(api::cuMemFree_v2(memory), CUDA_SUCCESS);
  EXPECT_EQ(api::cuStreamDestroy_v2(first), CUDA_SUCCESS);
  EXPECT_EQ(api::cuStreamDestroy_v2(first), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(api::cuStreamDestroy_v2(second), CUDA_SUCCESS);
}

TEST_F(EmulatedApi, TheLegacyStreamWaitsForBlockingStreamsOnly) {
  CUstream blocking, other;
  ASSERT_EQ(api::cuStreamCreate(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  ASSERT_EQ(api::cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  std::atomic<bool> gate{false};
  ASSERT_EQ(api::cuLaunchHostFunc(other, wait_for_gate, &gate), CUDA_SUCCESS);
  EXPECT_EQ(api::cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  ASSERT_EQ(api::cuLaunchHostFunc(blocking, wait_for_gate, &gate), CUDA_SUCCESS);
  EXPECT_EQ(api::cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  open(gate);
  EXPECT_EQ(api::cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(api::cuStreamQuery(nullptr), CUDA_SUCCESS);
}

TEST_F(EmulatedApi, AValueThatOneStreamWritesReleasesAnother) {
  CUstream first, second;
  ASSERT_EQ(api::cuStreamCreate(&first, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(api::cuStreamCreate(&second, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  CUdeviceptr flag = 0;
  ASSERT_EQ(api::cuMemAlloc_v2(&flag, 4), CUDA_SUCCESS);
  ASSERT_EQ(api::cuStreamWaitValue32_v2(first, flag, 5, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
  EXPECT_EQ(api::cuStreamQuery(first), CUDA_ERROR_NOT_READY);
  ASSERT_EQ(api::cuStreamWriteValue32_v2(second, flag, 5, 0), CUDA_SUCCESS);
  EXPECT_EQ(api::cuStreamSynchronize(first), CUDA_SUCCESS);
  EXPECT_EQ(api::cuMemFree_v2(flag), CUDA_SUCCESS);
}

TEST_F(EmulatedApi, MappedMemoryHonoursTheAddressAndTheAccess) {
  constexpr size_t kBytes = size_t{2} << 20;
  CUdeviceptr probe = 0, address = 0;
  ASSERT_EQ(api::cuMemAddressReserve(&probe, kBytes, 0, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(api::cuMemAddressFree(probe, kBytes), CUDA_SUCCESS);
  ASSERT_EQ(api::cuMemAddressReserve(&address, kBytes, 0, probe, 0), CUDA_SUCCESS);
  EXPECT_EQ(address, probe);
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle allocation = 0;
  EXPECT_EQ(api::cuMemCreate(&allocation, kBytes + 1, &properties, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(api::cuMemCreate(&allocation, kBytes, &properties, 0), CUDA_SUCCESS);
  ASSERT_EQ(api::cuMemMap(address, kBytes, 0, allocation, 0), CUDA_SUCCESS);
  int value = 42, back = 0;
  EXPECT_EQ(api::cuMemcpyHtoD_v2(address, &value, 4), CUDA_ERROR_INVALID_VALUE);
  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  ASSERT_EQ(api::cuMemSetAccess(address, kBytes, &access, 1), CUDA_SUCCESS);
  EXPECT_EQ(api::cuMemcpyHtoD_v2(address, &value, 4), CUDA_SUCCESS);
  EXPECT_EQ(api::cuMemcpyDtoH_v2(&back, address, 4), CUDA_SUCCESS);
  EXPECT_EQ(back, 42);
  EXPECT_EQ(api::cuMemAddressFree(address, kBytes), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api::cuMemUnmap(address, kBytes), CUDA_SUCCESS);
  EXPECT_EQ(api::cuMemRelease(allocation), CUDA_SUCCESS);
  EXPECT_EQ(api::cuMemRelease(allocation), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api::cuMemAddressFree(address, kBytes), CUDA_SUCCESS);
}

TEST_F(EmulatedApi, AThreadWithoutAContextAndAForgedHandleAreRefused) {
  CUdeviceptr memory = 0;
  CUresult result = CUDA_SUCCESS;
  std::thread([&] { result = api::cuMemAlloc_v2(&memory, 4); }).join();
  EXPECT_EQ(result, CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(api::cuStreamQuery(reinterpret_cast<CUstream>(0x1234)), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(api::cuEventQuery(reinterpret_cast<CUevent>(context_)), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(api::cuCtxSetCurrent(reinterpret_cast<CUcontext>(8)), CUDA_ERROR_INVALID_CONTEXT);
}

}  // namespace
}  // namespace gpurun::emulated::api
