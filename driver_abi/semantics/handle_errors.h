// Handle errors: the error for a handle that is dead, of another kind, or not a handle at all.
#pragma once

#include "driver_abi/row.h"

namespace gpurun::driver_abi {

// The CUresult. Source: the lists of return values in the CUDA Driver API manual. Functions of
// contexts name INVALID_CONTEXT. Functions of graphs ("Graph Management"), of pools ("Stream
// Ordered Memory Allocator") and of memory without an address ("Virtual Memory Management") name
// INVALID_VALUE.
constexpr int wrong_handle_error(HandleKind kind) noexcept {
  switch (kind) {
    case HandleKind::kContext:
      return 201;  // CUDA_ERROR_INVALID_CONTEXT
    case HandleKind::kGraph:
    case HandleKind::kGraphNode:
    case HandleKind::kGraphExec:
    case HandleKind::kMemoryPool:
    case HandleKind::kAllocation:
    case HandleKind::kUserObject:
      return 1;  // CUDA_ERROR_INVALID_VALUE
    default:
      return 400;  // CUDA_ERROR_INVALID_HANDLE
  }
}

}  // namespace gpurun::driver_abi
