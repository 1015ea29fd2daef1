// dma-bufs of the emulated device: a descriptor stands for exactly the memory that it was asked
// for, and nothing else of the device gets one.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "base/unique_fd.h"
#include "driver_abi/cuda_abi.h"

namespace gpurun::emulated::api {
CUresult cuInit(unsigned int);
CUresult cuDevicePrimaryCtxRetain(CUcontext*, CUdevice);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuMemAlloc_v2(CUdeviceptr*, size_t);
CUresult cuMemAllocAsync(CUdeviceptr*, size_t, CUstream);
CUresult cuMemFree_v2(CUdeviceptr);
CUresult cuMemcpyDtoH_v2(void*, CUdeviceptr, size_t);
CUresult cuMemcpyHtoD_v2(CUdeviceptr, const void*, size_t);
CUresult cuMemAddressReserve(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long);
CUresult cuMemCreate(CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*,
                     unsigned long long);
CUresult cuMemMap(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t);
CUresult cuMemGetHandleForAddressRange(void*, CUdeviceptr, size_t, CUmemRangeHandleType,
                                       unsigned long long);
CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget,
                                    CUflushGPUDirectRDMAWritesScope);

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

class EmulatedDmaBuf : public ::testing::Test {
 protected:
  EmulatedDmaBuf() {
    CUcontext context = nullptr;
    EXPECT_EQ(api::cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(api::cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    EXPECT_EQ(api::cuCtxSetCurrent(context), CUDA_SUCCESS);
  }
  static CUresult get(CUdeviceptr address, std::size_t bytes, UniqueFd* file) {
    int descriptor = -1;
    const CUresult result = api::cuMemGetHandleForAddressRange(
        &descriptor, address, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    file->reset(descriptor);
    return result;
  }
  // Writes through the descriptor, and reads on the device.
  static void expect_same_memory(CUdeviceptr address, std::size_t bytes) {
    UniqueFd file;
    ASSERT_EQ(get(address, bytes, &file), CUDA_SUCCESS);
    void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(),
                              lseek(file.get(), 0, SEEK_CUR));
    ASSERT_NE(mapped, MAP_FAILED);
    std::memset(mapped, 0x5c, bytes);
    unsigned char first = 0, last = 0;
    EXPECT_EQ(api::cuMemcpyDtoH_v2(&first, address, 1), CUDA_SUCCESS);
    EXPECT_EQ(api::cuMemcpyDtoH_v2(&last, address + bytes - 1, 1), CUDA_SUCCESS);
    EXPECT_EQ(first, 0x5c);
    EXPECT_EQ(last, 0x5c);
    munmap(mapped, bytes);
  }
};

TEST_F(EmulatedDmaBuf, StandsForMemoryOfAllocations) {
  CUdeviceptr before = 0, memory = 0;
  ASSERT_EQ(api::cuMemAlloc_v2(&before, kMiB), CUDA_SUCCESS);
  ASSERT_EQ(api::cuMemAlloc_v2(&memory, kMiB + 5), CUDA_SUCCESS);
  const unsigned char untouched = 1;
  ASSERT_EQ(api::cuMemcpyHtoD_v2(before, &untouched, 1), CUDA_SUCCESS);
  expect_same_memory(memory + 8192, kMiB - 8192);
  unsigned char got = 0;
  ASSERT_EQ(api::cuMemcpyDtoH_v2(&got, before, 1), CUDA_SUCCESS);
  EXPECT_EQ(got, untouched);
  UniqueFd file;
  EXPECT_EQ(get(memory, kMiB + 4096, &file), CUDA_SUCCESS) << "its last page";
  EXPECT_EQ(get(memory, kMiB + 8192, &file), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(get(memory + 1, 4096, &file), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(get(memory, 1000, &file), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api::cuMemFree_v2(memory), CUDA_SUCCESS);
  EXPECT_EQ(get(memory, 4096, &file), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api::cuMemFree_v2(before), CUDA_SUCCESS);
}

TEST_F(EmulatedDmaBuf, StandsForMappedMemory) {
  CUdeviceptr window = 0;
  CUmemGenericAllocationHandle piece = 0;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.allocFlags.gpuDirectRDMACapable = 1;
  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  ASSERT_EQ(api::cuMemAddressReserve(&window, 4 * kMiB, 0, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(api::cuMemCreate(&piece, 2 * kMiB, &properties, 0), CUDA_SUCCESS);
  ASSERT_EQ(api::cuMemMap(window, 2 * kMiB, 0, piece, 0), CUDA_SUCCESS);
  ASSERT_EQ(api::cuMemSetAccess(window, 2 * kMiB, &access, 1), CUDA_SUCCESS);
  expect_same_memory(window + 4096, 2 * kMiB - 4096);
  UniqueFd file;
  EXPECT_EQ(get(window, 4 * kMiB, &file), CUDA_ERROR_INVALID_VALUE) << "not all of it is mapped";
}

TEST_F(EmulatedDmaBuf, OtherMemoryHasNone) {
  CUdeviceptr pooled = 0;
  UniqueFd file;
  int on_host = 0;
  ASSERT_EQ(api::cuMemAllocAsync(&pooled, kMiB, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(get(pooled, 4096, &file), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(get(0, 4096, &file), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(get(reinterpret_cast<CUdeviceptr>(&on_host) / 4096 * 4096, 4096, &file),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(EmulatedDmaBuf, FlushChecksItsArguments) {
  EXPECT_EQ(api::cuFlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                            CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES),
            CUDA_SUCCESS);
  EXPECT_EQ(api::cuFlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                            static_cast<CUflushGPUDirectRDMAWritesScope>(7)),
            CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace gpurun::emulated::api
