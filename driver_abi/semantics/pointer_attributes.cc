// Pointer attributes: the value and the size of each.
#include "driver_abi/semantics/pointer_attributes.h"

#include <cstddef>
#include <cstring>

namespace gpurun::driver_abi {
namespace {

constexpr int kInvalidDevice = -2;  // CU_DEVICE_INVALID

template <typename T>
CUresult put(void* out, T value) {
  std::memcpy(out, &value, sizeof value);
  return CUDA_SUCCESS;
}

// `known`: CUDA knows the memory, but it lacks the attribute.
void clear(void* out, CUpointer_attribute which, bool known, std::uint64_t address) {
  switch (which) {
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      put<std::uint64_t>(out, known ? 0 : address);
      return;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      put<unsigned>(out, 0);
      return;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      put<int>(out, kInvalidDevice);
      return;
    default:
      put<std::uint64_t>(out, 0);
      return;
  }
}

}  // namespace

CUresult pointer_attribute(void* out, CUpointer_attribute which,
                           const PointerFacts& facts) noexcept {
  switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return put(out, facts.context);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      // Managed memory is reported as device memory (manual).
      return put<unsigned>(out, facts.on_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return put<CUdeviceptr>(out, facts.device_address != 0 ? facts.device_address
                                   : facts.device_reaches    ? facts.address
                                                             : 0);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!facts.on_host && !facts.managed) return CUDA_ERROR_INVALID_VALUE;
      return put(out, facts.host_address != 0 ? facts.host_address : facts.address);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return put<unsigned long long>(out, facts.buffer_id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return put<unsigned>(out, facts.managed);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put<int>(out, facts.ordinal);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return put<unsigned>(out, facts.legacy_ipc);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return put<CUdeviceptr>(out, facts.base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put<std::size_t>(out, facts.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return put<unsigned>(out, facts.mapped);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return put<std::uint64_t>(out, 0);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return put<unsigned>(out, 0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return put<unsigned>(out, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return put(out, facts.pool);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult pointer_attributes(unsigned count, const CUpointer_attribute* which, void* const* out,
                            const PointerFacts* facts, std::uint64_t address) noexcept {
  for (unsigned i = 0; i < count; ++i) {
    if (out[i] == nullptr || which[i] < CU_POINTER_ATTRIBUTE_CONTEXT ||
        which[i] > CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (facts == nullptr || pointer_attribute(out[i], which[i], *facts) != CUDA_SUCCESS) {
      clear(out[i], which[i], facts != nullptr, address);
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace gpurun::driver_abi
