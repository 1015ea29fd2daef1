// Object flags: which flags and priorities the calls that make streams, events, contexts and host
// memory take.
//
// Source: CUDA Driver API manual, at each named call. Unknown flags are INVALID_VALUE everywhere.
#pragma once

#include <cstdint>

#include "driver_abi/cuda_abi.h"

namespace gpurun::driver_abi {

// cuStreamCreate, cuStreamCreateWithPriority.
constexpr bool is_stream_flags(unsigned flags) noexcept {
  return (flags & ~unsigned{CU_STREAM_NON_BLOCKING}) == 0;
}

// cuCtxGetStreamPriorityRange, since compute capability 7.0.
inline constexpr int kLeastPriority = 0;
inline constexpr int kGreatestPriority = -5;
// A priority out of the range becomes the nearest in it (manual, cuStreamCreateWithPriority).
constexpr int clamp_priority(int priority) noexcept {
  if (priority > kLeastPriority) return kLeastPriority;
  return priority < kGreatestPriority ? kGreatestPriority : priority;
}

// cuEventCreate. An event for other processes cannot record times.
constexpr bool is_event_flags(unsigned flags) noexcept {
  constexpr unsigned kKnown =
      CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  const bool interprocess = (flags & CU_EVENT_INTERPROCESS) != 0;
  return (flags & ~kKnown) == 0 && !(interprocess && (flags & CU_EVENT_DISABLE_TIMING) == 0);
}

// cuEventRecordWithFlags, cuStreamWaitEvent. Each has one flag, which is "invalid outside of stream
// capture".
constexpr bool is_event_record_flags(unsigned flags, bool captures) noexcept {
  return flags == 0 || (flags == CU_EVENT_RECORD_EXTERNAL && captures);
}
constexpr bool is_event_wait_flags(unsigned flags, bool captures) noexcept {
  return flags == 0 || (flags == CU_EVENT_WAIT_EXTERNAL && captures);
}

// cuCtxCreate, cuCtxSetFlags, cuDevicePrimaryCtxSetFlags.
constexpr bool is_context_flags(unsigned flags) noexcept {
  return (flags & ~unsigned{CU_CTX_FLAGS_MASK}) == 0;
}

// cuMemHostAlloc.
constexpr bool is_host_alloc_flags(unsigned flags) noexcept {
  return (flags & ~unsigned{CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP |
                            CU_MEMHOSTALLOC_WRITECOMBINED}) == 0;
}

// cuMemHostRegister. `read_only`: the device attribute READ_ONLY_HOST_REGISTER_SUPPORTED. Memory of
// other devices is not supported, because there is no such device here.
constexpr CUresult check_host_register_flags(unsigned flags, bool read_only) noexcept {
  constexpr unsigned kKnown = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                              CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
  if ((flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  const bool refused = (flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0 ||
                       (!read_only && (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0);
  return refused ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

// Stream memory operations (manual, "Stream Memory Operations"). The four comparisons are two bits.
inline constexpr unsigned kWaitValueFlags = 3u | CU_STREAM_WAIT_VALUE_FLUSH;
inline constexpr unsigned kWriteValueFlags = CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;
// cuStreamBatchMemOp.
inline constexpr unsigned kStreamMemoryOperationsMax = 256;

}  // namespace gpurun::driver_abi
