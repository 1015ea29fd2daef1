// Pointers: attributes of addresses.
#include "emulated/api/entry.h"
#include "emulated/objects/memory_registry.h"

namespace gpurun::emulated::api {
namespace {

template <typename T>
CUresult put(void* out, T value) {
  *static_cast<T*>(out) = value;
  return CUDA_SUCCESS;
}

CUmemorytype memory_type(const MemoryRange& range) {
  if (range.on_host()) return CU_MEMORYTYPE_HOST;
  return range.kind == MemoryKind::kManaged ? CU_MEMORYTYPE_UNIFIED : CU_MEMORYTYPE_DEVICE;
}

CUresult attribute(void* out, CUpointer_attribute which, const MemoryRange& range,
                   CUdeviceptr address) {
  switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return put(out, reinterpret_cast<CUcontext>(range.context_handle));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      // Managed memory is reported as device memory (manual).
      return put<unsigned>(out, range.on_host() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return put(out, address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (memory_type(range) == CU_MEMORYTYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
      return put(out, reinterpret_cast<void*>(address));
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return put<unsigned>(out, 0);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return put<unsigned long long>(out, range.buffer_id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return put<unsigned>(out, range.kind == MemoryKind::kManaged);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put<int>(out, range.device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return put<unsigned>(out, range.kind == MemoryKind::kDevice);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return put<CUdeviceptr>(out, range.base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put<std::size_t>(out, range.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return put<unsigned>(out, range.accessible);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return put<std::uint64_t>(out, 0);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return put<unsigned>(out, 0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return put<unsigned>(out, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return put(out, reinterpret_cast<CUmemoryPool>(
                          range.kind == MemoryKind::kPool ? range.owner_handle : 0));
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// Pageable memory is not an error for cuPointerGetAttributes. Every value is 0, except the host
// pointer, which is the address itself (driver 580). `known`: CUDA knows the memory, and it lacks
// the attribute.
void clear_attribute(void* out, CUpointer_attribute which, bool known, CUdeviceptr address) {
  switch (which) {
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      put<CUdeviceptr>(out, known ? 0 : address);
      return;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      put<unsigned>(out, 0);
      return;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      put<int>(out, -2);  // CU_DEVICE_INVALID
      return;
    default:
      put<std::uint64_t>(out, 0);
      return;
  }
}

// An address means the same in every context, so a thread without a context may query it. NVIDIA's
// runtime does (cudaPointerGetAttributes in a thread that has made no call yet, as PyTorch's
// loaders have).
CUresult enter_to_ask() {
  if (thread_state().current() == nullptr) return enter_driver();
  GPURUN_ENTER(context);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute which, CUdeviceptr address) {
  GPURUN_TRY(enter_to_ask());
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto range = memory_registry().find(address);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  return attribute(data, which, *range, address);
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute* which, void** data,
                                CUdeviceptr address) {
  GPURUN_TRY(enter_to_ask());
  if (count == 0 || which == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto range = memory_registry().find(address);
  for (unsigned i = 0; i < count; ++i) {
    if (data[i] == nullptr || which[i] < CU_POINTER_ATTRIBUTE_CONTEXT ||
        which[i] > CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (!range || attribute(data[i], which[i], *range, address) != CUDA_SUCCESS) {
      clear_attribute(data[i], which[i], range.has_value(), address);
    }
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute which, CUdeviceptr address) {
  GPURUN_ENTER(context);
  if (value == nullptr || which != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return memory_registry().find(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace gpurun::emulated::api
