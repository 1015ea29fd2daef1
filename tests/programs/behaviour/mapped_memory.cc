// Mapped device memory: created exportable (as NCCL creates all of its memory), reserved, mapped
// and used. Its handle counts its owners, and the mapping outlives the handle.
#include <cuda.h>

#include <cstdio>
#include <vector>

#include "tests/support/cuda.h"

namespace {

constexpr int kValue = 0x5a5a5a5a;

void expect_filled(CUdeviceptr address, std::size_t bytes) {
  std::vector<int> values(bytes / sizeof(int));
  MUST(cuMemcpyDtoH(values.data(), address, bytes));
  for (const int value : values) EXPECT(value == kValue);
}

}  // namespace

int main() {
  CUcontext context = nullptr;
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  std::size_t bytes = 0;
  MUST(cuMemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CUmemGenericAllocationHandle memory = 0, same = 0;
  MUST(cuMemCreate(&memory, bytes, &properties, 0));
  CUdeviceptr address = 0;
  MUST(cuMemAddressReserve(&address, bytes, 0, 0, 0));
  MUST(cuMemMap(address, bytes, 0, memory, 0));
  const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  MUST(cuMemSetAccess(address, bytes, &access, 1));
  MUST(cuMemsetD32(address, kValue, bytes / sizeof(int)));
  expect_filled(address, bytes);

  // Two owners, two releases.
  MUST(cuMemRetainAllocationHandle(&same, reinterpret_cast<void*>(address)));
  EXPECT(same == memory);
  MUST(cuMemRelease(memory));
  MUST(cuMemRetainAllocationHandle(&same, reinterpret_cast<void*>(address)));
  EXPECT(same == memory);
  MUST(cuMemRelease(memory));
  MUST(cuMemRelease(memory));
  EXPECT(cuMemRelease(memory) != CUDA_SUCCESS);
  expect_filled(address, bytes);  // The mapping still has it.
  MUST(cuMemUnmap(address, bytes));
  MUST(cuMemAddressFree(address, bytes));
  MUST(cuDevicePrimaryCtxRelease(0));
  std::printf("PASSED\n");
  return 0;
}
