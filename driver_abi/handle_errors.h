// Which error a wrong handle is: one that is dead, of another kind, or none at all.
#pragma once

#include "driver_abi/row.h"

namespace gpurun::driver_abi {

// The CUresult. Source: the lists of return values in the CUDA Driver API manual: functions of
// contexts name INVALID_CONTEXT; those of graphs ("Graph Management"), of pools ("Stream Ordered
// Memory Allocator") and of memory without an address ("Virtual Memory Management") INVALID_VALUE.
constexpr int wrong_handle_error(HandleKind kind) noexcept {
  switch (kind) {
    case HandleKind::kContext:
      return 201;  // CUDA_ERROR_INVALID_CONTEXT
    case HandleKind::kGraph:
    case HandleKind::kGraphNode:
    case HandleKind::kGraphExec:
    case HandleKind::kMemoryPool:
    case HandleKind::kAllocation:
      return 1;  // CUDA_ERROR_INVALID_VALUE
    default:
      return 400;  // CUDA_ERROR_INVALID_HANDLE
  }
}

}  // namespace gpurun::driver_abi
