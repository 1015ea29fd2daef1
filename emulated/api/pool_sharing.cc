// Pools that processes share by descriptors. A pool's descriptor is the file of its device's
// memory, as for cuIpcGetMemHandle. The data of an allocation is an IpcHandle in that file.
#include <fcntl.h>
#include <sys/stat.h>

#include <cstring>

#include "emulated/api/entry.h"
#include "emulated/objects/device_arena.h"
#include "emulated/objects/imported_memory.h"
#include "emulated/objects/memory_pool.h"
#include "emulated/objects/memory_registry.h"

namespace gpurun::emulated::api {

CUresult cuMemPoolExportToShareableHandle(void* out, CUmemoryPool handle,
                                          CUmemAllocationHandleType type,
                                          unsigned long long flags) {
  GPURUN_ENTER_DRIVER();
  const auto pool = handles().find<MemoryPool>(handle);
  if (out == nullptr || pool == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  if (!pool->is_exportable) return CUDA_ERROR_INVALID_VALUE;
  // The file is made with the first memory.
  const std::uint64_t first = pool->device().arena().allocate(1);
  if (first != 0) pool->device().arena().free(first, 1);
  const int file = pool->device().arena().shared_file();
  if (file < 0) return CUDA_ERROR_NOT_SUPPORTED;
  const int copy = dup(file);
  if (copy < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *static_cast<int*>(out) = copy;
  return CUDA_SUCCESS;
}

// The first pointer shows the device of the pool.
CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* out, void* os_handle,
                                            CUmemAllocationHandleType type,
                                            unsigned long long flags) {
  GPURUN_ENTER_DRIVER();
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  const auto number = static_cast<int>(reinterpret_cast<std::intptr_t>(os_handle));
  if (!is_ipc_file(number)) return CUDA_ERROR_INVALID_VALUE;
  UniqueFd file(fcntl(number, F_DUPFD_CLOEXEC, 0));
  if (!file.valid()) return CUDA_ERROR_OUT_OF_MEMORY;
  Device& any = *devices().front();
  auto pool = std::make_shared<MemoryPool>(any, any.arena(), false);
  pool->imported = std::move(file);
  *out = handles().add(pool)->as<CUmemoryPool>();
  return CUDA_SUCCESS;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* out, CUdeviceptr address) {
  GPURUN_ENTER_DRIVER();
  const auto range = memory_registry().find(address);
  if (out == nullptr || !range || range->kind != MemoryKind::kPool || range->base != address) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto pool = handles().find<MemoryPool>(range->owner_handle);
  if (pool == nullptr || !pool->is_exportable) return CUDA_ERROR_INVALID_VALUE;
  Device& device = pool->device();
  IpcHandle handle;
  if (!device.arena().share(range->base, range->bytes, device.physical(), &handle)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  static_assert(sizeof handle == sizeof *out);
  std::memcpy(out, &handle, sizeof handle);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolImportPointer(CUdeviceptr* out, CUmemoryPool pool_handle,
                                CUmemPoolPtrExportData* data) {
  GPURUN_ENTER(context);
  const auto pool = handles().find<MemoryPool>(pool_handle);
  if (out == nullptr || data == nullptr || pool == nullptr || !pool->imported.valid()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  IpcHandle handle;
  std::memcpy(&handle, data, sizeof handle);
  struct stat about {};
  if (handle.kind != IpcKind::kMemory || fstat(pool->imported.get(), &about) != 0 ||
      static_cast<std::uint64_t>(about.st_ino) != handle.file) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  adopt_ipc_file(handle, pool->imported.get());
  return open_imported(context, handle, out, pool->handle());
}

}  // namespace gpurun::emulated::api
