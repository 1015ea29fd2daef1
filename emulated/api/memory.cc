// Memory: allocation of device, pinned, registered and managed memory.
#include <sys/mman.h>

#include <cstring>
#include <limits>

#include "driver_abi/semantics/object_flags.h"
#include "driver_abi/semantics/planes.h"
#include "emulated/api/entry.h"
#include "emulated/objects/device.h"
#include "emulated/objects/graph_memory.h"
#include "emulated/objects/imported_memory.h"
#include "emulated/objects/memory_registry.h"
#include "emulated/objects/ownership.h"

namespace gpurun::emulated::api {
namespace {

constexpr std::uint64_t kPage = 4096;

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

CUresult allocate_device(const ContextPtr& context, MemoryKind kind, std::uint64_t bytes,
                         unsigned flags, CUdeviceptr* out) {
  const std::uint64_t address = context->device().arena().allocate(bytes);
  if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  MemoryRange range;
  range.base = address;
  range.bytes = bytes;
  range.kind = kind;
  range.device = context->device().ordinal();
  range.context_handle = context->handle();
  range.flags = flags;
  memory_registry().add(range);
  *out = address;
  return CUDA_SUCCESS;
}

CUresult allocate_host(const ContextPtr& context, std::uint64_t bytes, unsigned flags, void** out) {
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!driver_abi::is_host_alloc_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > std::numeric_limits<std::uint64_t>::max() / 2) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::uint64_t span = round_up(bytes, kPage);
  void* memory = mmap(nullptr, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  MemoryRange range;
  range.base = reinterpret_cast<std::uint64_t>(memory);
  range.bytes = bytes;
  range.kind = MemoryKind::kHost;
  range.device = context->device().ordinal();
  range.context_handle = context->handle();
  range.flags = flags;
  if (!memory_registry().add(range)) {
    munmap(memory, span);
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out = memory;
  return CUDA_SUCCESS;
}

int visible_devices() { return static_cast<int>(devices().size()); }

}  // namespace

CUresult cuMemAlloc_v2(CUdeviceptr* out, size_t bytes) {
  GPURUN_ENTER(context);
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  return allocate_device(context, MemoryKind::kDevice, bytes, 0, out);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* out, size_t* pitch, size_t width_bytes, size_t height,
                            unsigned int element_bytes) {
  GPURUN_ENTER(context);
  if (out == nullptr || pitch == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::size_t row = 0;
  GPURUN_TRY(driver_abi::choose_pitch(width_bytes, height, element_bytes, &row));
  GPURUN_TRY(allocate_device(context, MemoryKind::kDevice, row * height, 0, out));
  *pitch = row;
  return CUDA_SUCCESS;
}

CUresult cuMemAllocManaged(CUdeviceptr* out, size_t bytes, unsigned int flags) {
  GPURUN_ENTER(context);
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return allocate_device(context, MemoryKind::kManaged, bytes, flags, out);
}

// Waits for all work of the context first (manual, "API synchronization behavior"). Not for memory
// of a pool (cuda.h, cuMemFree).
CUresult cuMemFree_v2(CUdeviceptr address) {
  GPURUN_ENTER(context);
  if (address == 0) return CUDA_SUCCESS;
  GPURUN_TRY(check_modes(driver_abi::CaptureFamily::kFree));
  const auto known = memory_registry().find(address);
  if (!known || known->base != address) return CUDA_ERROR_INVALID_VALUE;
  const auto owner = handles().find<Context>(known->context_handle);
  if (known->kind != MemoryKind::kPool) {
    GPURUN_TRY((owner == nullptr ? context : owner)->synchronize());
  }
  if (known->kind == MemoryKind::kGraph) {
    GraphMemory::note_freed(address);  // The graph keeps it (GraphMemory).
    return CUDA_SUCCESS;
  }
  if (known->kind == MemoryKind::kImported && known->owner_handle != 0) {
    free_imported(address);
    return CUDA_SUCCESS;
  }
  // A variable of a library ends with the library.
  if (known->kind == MemoryKind::kManaged && known->context_handle == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto range = memory_registry().take(
      address, {MemoryKind::kDevice, MemoryKind::kManaged, MemoryKind::kPool});
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  release_memory(*range);
  return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void** out, size_t bytes, unsigned int flags) {
  GPURUN_ENTER(context);
  return allocate_host(context, bytes, flags, out);
}

CUresult cuMemAllocHost_v2(void** out, size_t bytes) {
  GPURUN_ENTER(context);
  return allocate_host(context, bytes, 0, out);
}

CUresult cuMemFreeHost(void* memory) {
  GPURUN_ENTER(context);
  const auto address = reinterpret_cast<std::uint64_t>(memory);
  const auto known = memory_registry().find(address);
  if (!known || known->base != address || known->kind != MemoryKind::kHost) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  GPURUN_TRY(context->synchronize());
  if (const auto range = memory_registry().take(address, {MemoryKind::kHost})) {
    release_memory(*range);
  }
  return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void* memory, size_t bytes, unsigned int flags) {
  GPURUN_ENTER(context);
  if (memory == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  GPURUN_TRY(driver_abi::check_host_register_flags(flags, true));
  MemoryRange range;
  range.base = reinterpret_cast<std::uint64_t>(memory);
  range.bytes = bytes;
  range.kind = MemoryKind::kRegistered;
  range.device = context->device().ordinal();
  range.context_handle = context->handle();
  range.flags = flags;
  return memory_registry().add(range) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

CUresult cuMemHostUnregister(void* memory) {
  GPURUN_ENTER(context);
  if (memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto address = reinterpret_cast<std::uint64_t>(memory);
  const auto known = memory_registry().find(address);
  if (!known || known->base != address || known->kind != MemoryKind::kRegistered) {
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  }
  GPURUN_TRY(context->synchronize());
  memory_registry().take(address, {MemoryKind::kRegistered});
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* memory, unsigned int flags) {
  GPURUN_ENTER(context);
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto address = reinterpret_cast<std::uint64_t>(memory);
  const auto range = memory_registry().find(address);
  if (!range || !range->on_host()) return CUDA_ERROR_INVALID_VALUE;
  *out = address;
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int* flags, void* memory) {
  GPURUN_ENTER(context);
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto range = memory_registry().find(reinterpret_cast<std::uint64_t>(memory));
  if (!range || range->kind != MemoryKind::kHost) return CUDA_ERROR_INVALID_VALUE;
  *flags = range->flags | CU_MEMHOSTALLOC_DEVICEMAP;  // Implied by unified addressing.
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  GPURUN_ENTER(context);
  if (free == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *free = context->device().arena().bytes_free();
  *total = context->device().arena().bytes_total();
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  GPURUN_ENTER(context);
  const auto range = memory_registry().find(address);
  // Either output may be NULL (manual). 0 where there is no range (driver 580).
  if (base != nullptr) *base = range ? range->base : 0;
  if (bytes != nullptr) *bytes = range ? range->bytes : 0;
  return range ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

// Advice and prefetches are hints only, because host and device memory are the same here.
CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation location,
                               unsigned int flags, CUstream handle) {
  GPURUN_ENTER(context);
  if (find_stream(context, handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return memory_registry().advice().prefetch(address, bytes, location, flags, visible_devices());
}

CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream) {
  return api::cuMemPrefetchAsync_v2(address, bytes, driver_abi::location_of(device), 0, stream);
}

// The manual forbids the legacy stream in batches. It does not say which error comes.
CUresult cuMemPrefetchBatchAsync(CUdeviceptr* addresses, size_t* sizes, size_t count,
                                 CUmemLocation* locations, size_t* starts, size_t location_count,
                                 unsigned long long flags, CUstream handle) {
  GPURUN_ENTER(context);
  const StreamPtr found = find_stream(context, handle);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (found == context->legacy_stream()) return CUDA_ERROR_INVALID_VALUE;
  return memory_registry().advice().prefetch(
      {addresses, sizes, count, locations, starts, location_count, flags}, visible_devices());
}

CUresult cuMemDiscardBatchAsync(CUdeviceptr* addresses, size_t* sizes, size_t count,
                                unsigned long long flags, CUstream handle) {
  GPURUN_ENTER(context);
  const StreamPtr found = find_stream(context, handle);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (found == context->legacy_stream()) return CUDA_ERROR_INVALID_VALUE;
  return memory_registry().advice().discard({addresses, sizes, count, nullptr, nullptr, 0, flags});
}

CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr* addresses, size_t* sizes, size_t count,
                                           CUmemLocation* locations, size_t* starts,
                                           size_t location_count, unsigned long long flags,
                                           CUstream handle) {
  return api::cuMemPrefetchBatchAsync(addresses, sizes, count, locations, starts, location_count,
                                      flags, handle);
}

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t bytes, CUmem_advise advice,
                        CUmemLocation location) {
  GPURUN_ENTER(context);
  return memory_registry().advice().advise(address, bytes, advice, location, visible_devices());
}

CUresult cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device) {
  return api::cuMemAdvise_v2(address, bytes, advice, driver_abi::location_of(device));
}

CUresult cuMemRangeGetAttribute(void* out, size_t out_bytes, CUmem_range_attribute which,
                                CUdeviceptr address, size_t bytes) {
  GPURUN_ENTER(context);
  return memory_registry().advice().attribute(out, out_bytes, which, address, bytes);
}

CUresult cuMemRangeGetAttributes(void** out, size_t* out_bytes, CUmem_range_attribute* which,
                                 size_t count, CUdeviceptr address, size_t bytes) {
  GPURUN_ENTER(context);
  if (out == nullptr || out_bytes == nullptr || which == nullptr || count == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (std::size_t i = 0; i < count; ++i) {
    GPURUN_TRY(
        memory_registry().advice().attribute(out[i], out_bytes[i], which[i], address, bytes));
  }
  return CUDA_SUCCESS;
}

}  // namespace gpurun::emulated::api
