// Wrong calls: allocation, virtual memory, pools, host memory, pointers, arrays.
#include "wrong_call.h"

namespace gpurun::probe {
namespace {

constexpr char kMemory[] = "Memory Management";
constexpr char kVirtual[] = "Virtual Memory Management";
constexpr char kPool[] = "Stream Ordered Memory Allocator";
constexpr char kUnified[] = "Unified Addressing";

// A description of pinned memory on the device, right in all but what the caller changes.
CUmemAllocationProp* properties(WrongStage& s) {
  auto* prop = s.zeroed<CUmemAllocationProp>();
  prop->type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop->location.id = s.device;
  return prop;
}

constexpr std::size_t kGranule = 2 << 20;

constexpr WrongCall kCalls[] = {
    WRONG(cuMemAlloc_v2, "0 bytes", 1, kMemory, kContext, (s.out<CUdeviceptr>(), 0)),
    WRONG(cuMemAlloc_v2, "NULL output", 1, kMemory, kContext, (nullptr, 16)),
    WRONG(cuMemAlloc_v2, "more than the device has", 2, kMemory, kContext,
          (s.out<CUdeviceptr>(), std::size_t{1} << 46)),
    WRONG(cuMemAlloc_v2, "all addresses", 2, kMemory, kContext,
          (s.out<CUdeviceptr>(), ~std::size_t{0})),
    WRONG(cuMemAlloc_v2, "no current context", 201, kMemory, kInit, (s.out<CUdeviceptr>(), 16)),
    WRONG(cuMemFree_v2, "address that was never allocated", 1, kMemory, kContext, (0x1234500)),
    WRONG(cuMemFree_v2, "address inside an allocation", 1, kMemory, kContext, (s.memory + 256)),
    WRONG_AFTER(cuMemFree_v2, "twice", 1, kMemory, kContext,
                must(CU(s.driver, cuMemFree_v2)(s.memory), "cuMemFree");
                , (s.memory)),
    WRONG(cuMemFree_v2, "0", kNotInTheManual, "", kContext, (0)),
    WRONG(cuMemAllocPitch_v2, "element of 3 bytes", 1, kMemory, kContext,
          (s.out<CUdeviceptr>(), s.out<std::size_t>() + 1, 100, 100, 3)),
    WRONG(cuMemAllocPitch_v2, "width 0", 1, kMemory, kContext,
          (s.out<CUdeviceptr>(), s.out<std::size_t>() + 1, 0, 100, 4)),
    WRONG(cuMemAllocManaged, "0 bytes", 1, kMemory, kContext,
          (s.out<CUdeviceptr>(), 0, CU_MEM_ATTACH_GLOBAL)),
    WRONG(cuMemAllocManaged, "no flags", 1, kMemory, kContext, (s.out<CUdeviceptr>(), 16, 0)),
    WRONG(cuMemGetInfo_v2, "no current context", 201, kMemory, kInit,
          (s.out<std::size_t>(), s.out<std::size_t>() + 1)),
    WRONG(cuMemGetAddressRange_v2, "unknown address", 500, kMemory, kContext,
          (s.out<CUdeviceptr>(), s.out<std::size_t>() + 1, 0x1234500)),
    WRONG(cuMemHostAlloc, "0 bytes", 1, kMemory, kContext, (s.out<void*>(), 0, 0)),
    WRONG(cuMemHostAlloc, "unknown flags", 1, kMemory, kContext, (s.out<void*>(), 16, 0xff00)),
    WRONG(cuMemHostAlloc, "NULL output", 1, kMemory, kContext, (nullptr, 16, 0)),
    WRONG(cuMemFreeHost, "pageable memory", 1, kMemory, kContext, (s.scratch)),
    WRONG(cuMemFreeHost, "NULL", kNotInTheManual, "", kContext, (nullptr)),
    WRONG(cuMemHostRegister_v2, "0 bytes", 1, kMemory, kContext, (s.scratch, 0, 0)),
    WRONG(cuMemHostRegister_v2, "NULL", 1, kMemory, kContext, (nullptr, 4096, 0)),
    WRONG(cuMemHostRegister_v2, "unknown flags", 1, kMemory, kContext, (s.scratch, 64, 0xff00)),
    WRONG_AFTER(cuMemHostRegister_v2, "twice", 712, kMemory, kContext,
                must(CU(s.driver, cuMemHostRegister_v2)(s.scratch, 4096, 0), "cuMemHostRegister");
                , (s.scratch, 4096, 0)),
    WRONG(cuMemHostUnregister, "never registered", 713, kMemory, kContext, (s.scratch)),
    WRONG(cuMemHostGetDevicePointer_v2, "pageable memory", 1, kMemory, kContext,
          (s.out<CUdeviceptr>(), s.scratch, 0)),
    WRONG(cuMemHostGetDevicePointer_v2, "flags are not 0", 1, kMemory, kContext,
          (s.out<CUdeviceptr>(), s.scratch, 7)),
    WRONG(cuMemHostGetFlags, "pageable memory", 1, kMemory, kContext,
          (s.out<unsigned>(), s.scratch)),
    WRONG(cuMemsetD8_v2, "unknown address", 1, kMemory, kContext, (0x1234500, 0, 16)),
    WRONG(cuMemsetD8_v2, "beyond the allocation", 1, kMemory, kContext,
          (s.memory, 0, std::size_t{1} << 40)),
    WRONG(cuMemsetD32_v2, "misaligned", 1, kMemory, kContext, (s.memory + 1, 0, 4)),
    WRONG(cuMemsetD16_v2, "misaligned", 1, kMemory, kContext, (s.memory + 1, 0, 4)),
    WRONG(cuMemsetD2D8_v2, "pitch below width", 1, kMemory, kContext, (s.memory, 16, 0, 64, 4)),
    WRONG(cuMemsetD8Async, "stream of zeros", 400, kMemory, kContext,
          (s.memory, 0, 16, zeros_as<CUstream>())),
    WRONG(cuPointerGetAttribute, "unknown address", 1, kUnified, kContext,
          (s.out<void>(), CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0x1234500)),
    WRONG(cuPointerGetAttribute, "unknown attribute", 1, kUnified, kContext,
          (s.out<void>(), number_as<CUpointer_attribute>(99), s.memory)),
    WRONG(cuPointerGetAttribute, "NULL output", 1, kUnified, kContext,
          (nullptr, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, s.memory)),
    WRONG(cuPointerSetAttribute, "attribute that cannot be set", 1, kUnified, kContext,
          (s.out<void>(), CU_POINTER_ATTRIBUTE_MEMORY_TYPE, s.memory)),
    WRONG(cuMemAddressReserve, "0 bytes", 1, kVirtual, kContext,
          (s.out<CUdeviceptr>(), 0, 0, 0, 0)),
    WRONG(cuMemAddressReserve, "not a multiple of the granularity", 1, kVirtual, kContext,
          (s.out<CUdeviceptr>(), 4097, 0, 0, 0)),
    WRONG(cuMemAddressReserve, "alignment that is no power of two", 1, kVirtual, kContext,
          (s.out<CUdeviceptr>(), kGranule, 3 * kGranule, 0, 0)),
    WRONG(cuMemAddressReserve, "flags are not 0", 1, kVirtual, kContext,
          (s.out<CUdeviceptr>(), kGranule, 0, 0, 1)),
    WRONG(cuMemAddressFree, "never reserved", 1, kVirtual, kContext, (0x7000'0000'0000, kGranule)),
    WRONG(cuMemCreate, "0 bytes", 1, kVirtual, kContext,
          (s.out<CUmemGenericAllocationHandle>(), 0, properties(s), 0)),
    WRONG(cuMemCreate, "not a multiple of the granularity", 1, kVirtual, kContext,
          (s.out<CUmemGenericAllocationHandle>(), 4097, properties(s), 0)),
    WRONG(cuMemCreate, "NULL properties", 1, kVirtual, kContext,
          (s.out<CUmemGenericAllocationHandle>(), kGranule, nullptr, 0)),
    WRONG_AFTER(cuMemCreate, "unknown device", 101, kVirtual, kContext,
                properties(s)->location.id = 4711;
                , (s.out<CUmemGenericAllocationHandle>(), kGranule,
                   reinterpret_cast<CUmemAllocationProp*>(s.scratch + 8192), 0)),
    WRONG(cuMemMap, "range that is not reserved", 1, kVirtual, kContext,
          (0x7000'0000'0000, kGranule, 0, 0x4711, 0)),
    WRONG(cuMemUnmap, "range that is not mapped", 1, kVirtual, kContext,
          (0x7000'0000'0000, kGranule)),
    WRONG(cuMemRelease, "unknown handle", 1, kVirtual, kContext, (0x4711)),
    WRONG(cuMemSetAccess, "NULL description", 1, kVirtual, kContext,
          (s.memory, kGranule, nullptr, 1)),
    WRONG(cuMemGetAllocationGranularity, "NULL properties", 1, kVirtual, kContext,
          (s.out<std::size_t>(), nullptr, CU_MEM_ALLOC_GRANULARITY_MINIMUM)),
    WRONG(cuMemRetainAllocationHandle, "memory of cuMemAlloc", 1, kVirtual, kContext,
          (s.out<CUmemGenericAllocationHandle>(),
           reinterpret_cast<void*>(static_cast<std::uintptr_t>(s.memory)))),
    WRONG(cuMemAllocAsync, "0 bytes", 1, kPool, kContext, (s.out<CUdeviceptr>(), 0, s.stream)),
    WRONG(cuMemAllocAsync, "stream of zeros", 400, kPool, kContext,
          (s.out<CUdeviceptr>(), 16, zeros_as<CUstream>())),
    WRONG(cuMemFreeAsync, "address that was never allocated", 1, kPool, kContext,
          (0x1234500, s.stream)),
    WRONG(cuMemPoolDestroy, "NULL", 1, kPool, kContext, (nullptr)),
    WRONG(cuMemPoolDestroy, "address of zeros", 1, kPool, kContext, (zeros_as<CUmemoryPool>())),
    WRONG(cuMemPoolCreate, "NULL properties", 1, kPool, kContext, (s.out<CUmemoryPool>(), nullptr)),
    WRONG(cuArrayCreate_v2, "width 0", 1, kMemory, kContext,
          (s.out<CUarray>(), s.zeroed<CUDA_ARRAY_DESCRIPTOR>())),
    WRONG(cuArrayCreate_v2, "NULL description", 1, kMemory, kContext, (s.out<CUarray>(), nullptr)),
    WRONG(cuArrayDestroy, "NULL", 400, kMemory, kContext, (nullptr)),
    WRONG(cuArrayDestroy, "address of zeros", 400, kMemory, kContext, (zeros_as<CUarray>())),
    WRONG(cuIpcGetMemHandle, "unknown address", 1, kMemory, kContext,
          (s.out<CUipcMemHandle>(), 0x1234500)),
    WRONG(cuIpcOpenMemHandle_v2, "a handle of zeros", kNotInTheManual, "", kContext,
          (s.out<CUdeviceptr>(), *s.zeroed<CUipcMemHandle>(), 1)),
};

}  // namespace

std::span<const WrongCall> wrong_memory_calls() { return kCalls; }

}  // namespace gpurun::probe
