// Stream-ordered allocation: pools, cuMemAllocAsync and cuMemFreeAsync.
#include <cstring>

#include "driver_abi/semantics/pool_attributes.h"
#include "driver_abi/semantics/pool_places.h"
#include "emulated/api/entry.h"
#include "emulated/api/graph_nodes.h"
#include "emulated/objects/graph_memory.h"
#include "emulated/objects/imported_memory.h"
#include "emulated/objects/memory_pool.h"
#include "emulated/objects/memory_registry.h"
#include "emulated/objects/ownership.h"

namespace gpurun::emulated::api {
namespace {

using PoolPtr = std::shared_ptr<MemoryPool>;

CUresult allocate_from(const PoolPtr& pool, CUdeviceptr* out, size_t bytes, CUstream handle) {
  GPURUN_ENTER(context);
  if (out == nullptr || bytes == 0 || pool->imported.valid()) return CUDA_ERROR_INVALID_VALUE;
  const StreamPtr stream = find_stream(context, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const auto capture = stream->capture()) {
    OperationPtr operation;
    GPURUN_TRY(make_allocation(*capture->graph(), pool->device(), bytes, out, &operation));
    return submit(context, stream, std::move(operation));
  }
  GPURUN_TRY(check_stream_use(driver_abi::CaptureFamily::kWork, *stream));
  std::uint64_t address = pool->allocate(bytes);
  if (address == 0) {
    // Waits, because frees that are queued in this stream precede this allocation.
    stream->wait_for(stream->position());
    address = pool->allocate(bytes);
  }
  if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  MemoryRange range;
  range.base = address;
  range.bytes = bytes;
  range.kind = MemoryKind::kPool;
  range.device = pool->device().ordinal();
  range.owner_handle = pool->handle();
  range.maker_handle = stream->context().handle();
  memory_registry().add(range);
  *out = address;
  return CUDA_SUCCESS;
}

// The device of a pool's place.
CUresult find_place(const CUmemLocation* location, CUmemAllocationType type, Device** out) {
  if (location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int result = driver_abi::check_pool_place(location->type, type);
  if (result != 0) return static_cast<CUresult>(result);
  *out = device_at(location->id);
  return *out == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult set_current_pool(Device& device, CUmemoryPool handle) {
  const auto pool = handles().find<MemoryPool>(handle);
  if (pool == nullptr || &pool->device() != &device || pool->imported.valid()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  device.set_current_pool(pool);
  return CUDA_SUCCESS;
}

// Memory of cuMemPoolImportPointer.
bool is_of_imported_pool(const MemoryRange& range) {
  return range.kind == MemoryKind::kImported && range.owner_handle != 0;
}

}  // namespace

// "The allocation comes from the memory pool current to the stream's device" (manual).
CUresult cuMemAllocAsync(CUdeviceptr* out, size_t bytes, CUstream handle) {
  GPURUN_ENTER(context);
  const StreamPtr stream = find_stream(context, handle);
  Device& device = stream == nullptr ? context->device() : stream->context().device();
  return allocate_from(device.current_pool(), out, bytes, handle);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* out, size_t bytes, CUmemoryPool handle,
                                 CUstream stream) {
  GPURUN_ENTER(context);
  const auto pool = handles().find<MemoryPool>(handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return allocate_from(pool, out, bytes, stream);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
  GPURUN_ENTER(context);
  const StreamPtr stream = find_stream(context, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture() != nullptr) {
    OperationPtr operation;
    GPURUN_TRY(make_free(address, &operation));
    return submit(context, stream, std::move(operation));
  }
  GPURUN_TRY(check_stream_use(driver_abi::CaptureFamily::kWork, *stream));
  const auto known = memory_registry().find(address);
  if (!known || known->base != address ||
      (known->kind != MemoryKind::kPool && known->kind != MemoryKind::kDevice &&
       known->kind != MemoryKind::kGraph && !is_of_imported_pool(*known))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // The address is invalid from here on, and the memory is freed in stream order. Until then the
  // registry still knows it, because operations that were issued before may use it.
  auto body = [address] {
    GraphMemory::note_freed(address);  // The graph keeps it (GraphMemory).
    if (const auto now = memory_registry().find(address); now && is_of_imported_pool(*now)) {
      free_imported(address);
      return CUDA_SUCCESS;
    }
    const auto range = memory_registry().take(address, {MemoryKind::kPool, MemoryKind::kDevice});
    if (range) release_memory(*range);
    return CUDA_SUCCESS;
  };
  return submit(context, stream, std::make_shared<FunctionOperation>(std::move(body), true));
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice ordinal) {
  GPURUN_ENTER_DRIVER();
  Device* device = device_at(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = device->default_pool()->as<CUmemoryPool>();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool* out, CUdevice ordinal) {
  GPURUN_ENTER_DRIVER();
  Device* device = device_at(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = device->current_pool()->as<CUmemoryPool>();
  return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool handle) {
  GPURUN_ENTER_DRIVER();
  Device* device = device_at(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return set_current_pool(*device, handle);
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool* out, CUmemLocation* location,
                                CUmemAllocationType type) {
  GPURUN_ENTER_DRIVER();
  Device* device = nullptr;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GPURUN_TRY(find_place(location, type, &device));
  *out = device->default_pool()->as<CUmemoryPool>();
  return CUDA_SUCCESS;
}

CUresult cuMemGetMemPool(CUmemoryPool* out, CUmemLocation* location, CUmemAllocationType type) {
  GPURUN_ENTER_DRIVER();
  Device* device = nullptr;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GPURUN_TRY(find_place(location, type, &device));
  *out = device->current_pool()->as<CUmemoryPool>();
  return CUDA_SUCCESS;
}

CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool handle) {
  GPURUN_ENTER_DRIVER();
  Device* device = nullptr;
  GPURUN_TRY(find_place(location, type, &device));
  return set_current_pool(*device, handle);
}

CUresult cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* properties) {
  GPURUN_ENTER_DRIVER();
  Device* device = nullptr;
  if (out == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GPURUN_TRY(find_place(&properties->location, properties->allocType, &device));
  if ((properties->handleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  auto pool = std::make_shared<MemoryPool>(*device, device->arena(), false);
  pool->bytes_max = properties->maxSize;
  pool->is_exportable = properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE;
  *out = handles().add(pool)->as<CUmemoryPool>();
  return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool handle) {
  GPURUN_ENTER_DRIVER();
  const auto pool = handles().find<MemoryPool>(handle);
  if (pool == nullptr || pool->is_default()) return CUDA_ERROR_INVALID_VALUE;
  Device& device = pool->device();
  if (device.current_pool() == pool) device.set_current_pool(nullptr);
  handles().remove<MemoryPool>(handle);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t) {
  GPURUN_ENTER_DRIVER();
  // Nothing is retained. Memory returns to the device as soon as it is freed.
  return handles().find<MemoryPool>(handle) == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  GPURUN_ENTER_DRIVER();
  const auto pool = handles().find<MemoryPool>(handle);
  if (pool == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t given = 0;
  std::memcpy(&given, value, driver_abi::pool_attribute_bytes(attribute));
  if (!driver_abi::is_pool_setting(attribute, given)) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      pool->reuse_follow_event_dependencies = *static_cast<int*>(value);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      pool->reuse_allow_opportunistic = *static_cast<int*>(value);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      pool->reuse_allow_internal_dependencies = *static_cast<int*>(value);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      pool->release_threshold = *static_cast<cuuint64_t*>(value);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      pool->reserved_high = pool->used.load();
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      pool->used_high = pool->used.load();
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  GPURUN_ENTER_DRIVER();
  const auto pool = handles().find<MemoryPool>(handle);
  if (pool == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto flag = [value](int on) { *static_cast<int*>(value) = on; };
  auto bytes = [value](std::uint64_t number) { *static_cast<cuuint64_t*>(value) = number; };
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      flag(pool->reuse_follow_event_dependencies);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      flag(pool->reuse_allow_opportunistic);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      flag(pool->reuse_allow_internal_dependencies);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      bytes(pool->release_threshold);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      bytes(pool->used);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      bytes(pool->reserved_high);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      bytes(pool->used_high);
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// All devices of this process reach all memory.
CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* map, size_t count) {
  GPURUN_ENTER_DRIVER();
  if (handles().find<MemoryPool>(handle) == nullptr || (count != 0 && map == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    if (device_at(map[i].location.id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle,
                            CUmemLocation* location) {
  GPURUN_ENTER_DRIVER();
  if (flags == nullptr || location == nullptr || handles().find<MemoryPool>(handle) == nullptr ||
      location->type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (device_at(location->id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return CUDA_SUCCESS;
}

}  // namespace gpurun::emulated::api
