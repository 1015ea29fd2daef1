// Device memory for other devices of the machine: dma-bufs and flushes (GPUDirect).
//
// A dma-buf of this device is a descriptor of the memory's file that begins at its position,
// because a file of memory has more than one range. The verbs double maps it from there.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <string>

#include "base/unique_fd.h"
#include "emulated/api/entry.h"
#include "emulated/api/mapped_file.h"
#include "emulated/objects/memory_registry.h"

namespace gpurun::emulated::api {

// All of the range is one allocation of cuMemAlloc or one mapping of cuMemMap (manual).
CUresult cuMemGetHandleForAddressRange(void* handle, CUdeviceptr address, size_t bytes,
                                       CUmemRangeHandleType type, unsigned long long flags) {
  GPURUN_ENTER_DRIVER();
  const std::uint64_t page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  if (handle == nullptr || bytes == 0 || address % page != 0 || bytes % page != 0 || flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD) return CUDA_ERROR_NOT_SUPPORTED;
  const auto range = memory_registry().find(address);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t end = (range->end() + page - 1) / page * page;
  if (end - address < bytes) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t offset = 0;
  int file = -1;
  if (range->kind == MemoryKind::kDevice) {
    file = device_at(range->device)->arena().file_of(address, &offset);
  } else if (range->kind == MemoryKind::kMapped) {
    file = mapped_file(*range);
    offset = address - range->base;
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // A descriptor of its own, with a position of its own.
  UniqueFd opened(
      file < 0 ? -1 : open(("/proc/self/fd/" + std::to_string(file)).c_str(), O_RDWR | O_CLOEXEC));
  if (!opened.valid()) return CUDA_ERROR_NOT_SUPPORTED;
  if (lseek(opened.get(), static_cast<off_t>(offset), SEEK_SET) < 0) return CUDA_ERROR_UNKNOWN;
  *static_cast<int*>(handle) = opened.release();
  return CUDA_SUCCESS;
}

// Memory of the machine is the device's memory, and is always up to date.
CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target,
                                    CUflushGPUDirectRDMAWritesScope scope) {
  GPURUN_ENTER(context);
  static_cast<void>(context);
  if (target != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX ||
      (scope != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER &&
       scope != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return CUDA_SUCCESS;
}

}  // namespace gpurun::emulated::api
