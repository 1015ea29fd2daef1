// Pointers: what a pointer is, answered from the ranges that the client knows.
#include "client/interpose/call/forward.h"
#include "client/interpose/custom.h"
#include "client/interpose/memory/memory_ranges.h"

namespace gpurun::client::interpose {
namespace {

constexpr int kInvalidDevice = -2;  // CU_DEVICE_INVALID

template <typename T>
CUresult put(void* out, T value) {
  *static_cast<T*>(out) = value;
  return CUDA_SUCCESS;
}

// The value of one attribute for memory that CUDA knows (manual, cuPointerGetAttribute).
CUresult attribute(void* out, CUpointer_attribute which, const MemoryRange& range,
                   CUdeviceptr address) {
  switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return put(out, as<CUcontext>(range.context));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put<unsigned>(out, range.on_host() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      // Host memory has no address on the device.
      return put<CUdeviceptr>(out, range.on_host() ? 0 : address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!range.on_host()) return CUDA_ERROR_INVALID_VALUE;
      return put(out, reinterpret_cast<void*>(address));
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return put<unsigned long long>(out, range.buffer_id);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put<int>(out, range.ordinal);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return put<CUdeviceptr>(out, range.base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put<std::size_t>(out, range.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return put<unsigned>(out, 1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return put<std::uint64_t>(out, 0);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return put<unsigned>(out, range.kind == MemoryKind::kDevice);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return put<unsigned>(out, 0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return put<unsigned>(out, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return put(out, as<CUmemoryPool>(range.kind == MemoryKind::kPool ? range.owner : Handle{0}));
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// For unknown memory cuPointerGetAttributes returns zeros and no error, and the address itself as
// the host pointer (driver 580). `known`: CUDA knows the memory, but it lacks the attribute.
void clear(void* out, CUpointer_attribute which, bool known, CUdeviceptr address) {
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

// Prepares a query. An address means the same in every context, so a thread without a context may
// query it. NVIDIA's runtime does that (cudaPointerGetAttributes in a thread that has called
// nothing yet, as in PyTorch's loaders).
int enter_to_ask(Here& here) {
  if (const int result = here.enter(); result != 0) return result;
  const int result = here.enter_context();
  if (result != CUDA_ERROR_INVALID_CONTEXT) return result;
  here.context = nullptr;
  return 0;
}

}  // namespace
}  // namespace gpurun::client::interpose

namespace gpurun::client::interpose::custom {

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute which, CUdeviceptr address) {
  Here here;
  if (const int result = enter_to_ask(here); result != 0) return cuda(result);
  if (here.context != nullptr) {
    if (const int lost = here.session().health(here.context->handle); lost != 0) return cuda(lost);
  }
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto range = find_range(address);
  return range.has_value() ? attribute(data, which, *range, address) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* which, void** data,
                                CUdeviceptr address) {
  Here here;
  if (const int result = enter_to_ask(here); result != 0) return cuda(result);
  if (count == 0 || which == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto range = find_range(address);
  for (unsigned i = 0; i < count; ++i) {
    if (data[i] == nullptr || which[i] < CU_POINTER_ATTRIBUTE_CONTEXT ||
        which[i] > CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (!range.has_value() || attribute(data[i], which[i], *range, address) != CUDA_SUCCESS) {
      clear(data[i], which[i], range.has_value(), address);
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace gpurun::client::interpose::custom
