// MemoryOperations: what each operation does, and the checks of its operands.
#include "emulated/objects/memory_operations.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "driver_abi/semantics/object_flags.h"
#include "emulated/objects/context.h"
#include "emulated/objects/memory_registry.h"

namespace gpurun::emulated {
namespace {

template <typename T>
bool compare(unsigned flags, T now, T wanted, bool at_least) {
  switch (flags & 3u) {
    case CU_STREAM_WAIT_VALUE_EQ:
      return now == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
      return (now & wanted) != 0;
    case CU_STREAM_WAIT_VALUE_NOR:
      return static_cast<T>(~(now | wanted)) != 0;
    default:
      return at_least;
  }
}

bool satisfied(const CUstreamBatchMemOpParams& what) {
  const auto& wait = what.waitValue;
  if (what.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32) {
    const std::uint32_t now = std::atomic_ref(*reinterpret_cast<std::uint32_t*>(wait.address));
    return compare(wait.flags, now, wait.value, static_cast<std::int32_t>(now - wait.value) >= 0);
  }
  const std::uint64_t now = std::atomic_ref(*reinterpret_cast<std::uint64_t*>(wait.address));
  return compare(wait.flags, now, wait.value64, static_cast<std::int64_t>(now - wait.value64) >= 0);
}

void wait(const CUstreamBatchMemOpParams& what, const Context& context) {
  auto pause = std::chrono::microseconds(1);
  for (int round = 0; !satisfied(what) && context.sticky_error() == CUDA_SUCCESS; ++round) {
    if (round < 64) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, std::chrono::microseconds(500));
    }
  }
}

void run_one(const CUstreamBatchMemOpParams& what, const Context& context) {
  switch (what.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return wait(what, context);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return std::atomic_ref(*reinterpret_cast<std::uint32_t*>(what.writeValue.address))
          .store(what.writeValue.value);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(what.writeValue.address))
          .store(what.writeValue.value64);
    default:
      return;  // Barriers and flushes: copies are complete when they return.
  }
}

}  // namespace

CUresult MemoryOperations::run(Context& context) {
  for (const CUstreamBatchMemOpParams& each : list_) {
    if (context.sticky_error() != CUDA_SUCCESS) break;
    run_one(each, context);
  }
  return CUDA_SUCCESS;
}

CUresult check_memory_operation(const CUstreamBatchMemOpParams& what) {
  std::uint64_t bytes = 0;
  std::uint64_t address = what.waitValue.address;
  switch (what.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      if ((what.waitValue.flags & ~driver_abi::kWaitValueFlags) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      bytes = 4;
      break;
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      if ((what.waitValue.flags & ~driver_abi::kWaitValueFlags) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      bytes = 8;
      break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      if ((what.writeValue.flags & ~driver_abi::kWriteValueFlags) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      bytes = what.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 ? 4 : 8;
      break;
    case CU_STREAM_MEM_OP_BARRIER:
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (address % bytes != 0 || !memory_registry().covers(address, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

}  // namespace gpurun::emulated
