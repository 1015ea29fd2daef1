// Entry points: the functions that the emulated device's libcuda.so.1 exports. The list of them is
// generated from the rows (driver_abi/apigen).
#include <atomic>
#include <cstdint>
#include <iterator>

#include "base/log.h"
#include "emulated/api.h"
#include "emulated/api/borrowed_context.h"
#include "emulated/api/caller.h"
#include "emulated/objects/capture.h"
#include "emulated/objects/thread_state.h"

namespace {

// Logs once for each function, because some programs call one thousands of times.
CUresult not_implemented(std::atomic_flag& logged, const char* symbol) {
  if (!logged.test_and_set(std::memory_order_relaxed)) {
    GPURUN_LOG(kWarning, "emulated device: %s is not implemented (CUDA_ERROR_NOT_SUPPORTED)",
               symbol);
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

#include "emulated/api/entry_points.inc"
