// MaskedAttribute table. Remove a line, and add a test, when the feature works over the wire.
#include "client/devices/device_attribute_mask.h"

#include "driver_abi/cuda_abi.h"

namespace gpurun::client {
namespace {

constexpr const char* kNoSharedPages =
    "the device cannot touch the client's pages, nor the client the device's";
constexpr const char* kNoLocalObject = "descriptors and windows of the client mean nothing there";
constexpr const char* kNoHostVmm = "host memory is the client's, mapped memory is not the device's";
constexpr const char* kNoFabric = "its network belongs to the server";
constexpr const char* kNotServed = "not forwarded yet";

constexpr MaskedAttribute kMask[] = {
    {CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT, 0, "no display hangs on a leased device"},
    {CU_DEVICE_ATTRIBUTE_INTEGRATED, 0, kNoSharedPages},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 0, kNoSharedPages},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 0, kNoSharedPages},
    {CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED, 0, kNoSharedPages},
    {CU_DEVICE_ATTRIBUTE_ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED, 0, kNoSharedPages},
    {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0, kNoSharedPages},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0, kNoSharedPages},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 0, kNoSharedPages},
    {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES, 0, kNoSharedPages},
    {CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST, 0, kNoSharedPages},
    {CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 0, kNoSharedPages},
    {CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, 0, kNoSharedPages},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH, 0, "deprecated, and not forwarded"},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 0, kNoLocalObject},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED, 0, kNoLocalObject},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED, 0, kNoLocalObject},
    {CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, 0, kNoLocalObject},
    {CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0, kNoLocalObject},
    {CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED, 0, kNoLocalObject},
    {CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED, 0, kNoLocalObject},
    {CU_DEVICE_ATTRIBUTE_D3D12_CIG_SUPPORTED, 0, kNoLocalObject},
    {CU_DEVICE_ATTRIBUTE_VULKAN_CIG_SUPPORTED, 0, kNoLocalObject},
    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 0, kNoFabric},
    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, 0, kNoFabric},
    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, 0, kNoFabric},
    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, 0, kNoFabric},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 0, kNoFabric},
    {CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0, kNoFabric},
    {CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED, 0, kNoFabric},
    {CU_DEVICE_ATTRIBUTE_NUMA_CONFIG, 0, kNoHostVmm},
    {CU_DEVICE_ATTRIBUTE_NUMA_ID, -1, kNoHostVmm},
    {CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, -1, kNoHostVmm},
    {CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0, kNoHostVmm},
    {CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED, 0, kNoHostVmm},
    {CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED, 0, kNoHostVmm},
    {CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0, kNoHostVmm},
    {CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED, 0, kNotServed},
    {CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED, 0, kNotServed},
    {CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK, 0, kNotServed},
    {CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH, 0, kNotServed},
};

}  // namespace

const MaskedAttribute* masked_attribute(int attribute, SharedPages shared) noexcept {
  if ((shared.host_memory || shared.mirrored) &&
      (attribute == CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY ||
       attribute == CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY)) {
    return nullptr;
  }
  if (shared.host_memory && attribute == CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS) {
    return nullptr;
  }
  if (shared.descriptors &&
      attribute == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) {
    return nullptr;
  }
  // Of the kinds of handles of pools, descriptors.
  static constexpr MaskedAttribute kPools = {CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, 0,
                                             kNoFabric, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
  if (shared.descriptors && attribute == kPools.attribute) return &kPools;
  for (const MaskedAttribute& masked : kMask) {
    if (masked.attribute == attribute) return &masked;
  }
  return nullptr;
}

}  // namespace gpurun::client
