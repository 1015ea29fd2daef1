// LegacyLaunch: the state that launch calls from before CUDA 4 keep for each function between them:
// block shape, dynamic shared memory and parameters (cuFuncSetBlockShape, cuParamSetv,
// cuLaunchGrid, ...).
//
// The client library and the emulated device both keep one with each function, and launch by
// cuLaunchKernel with the parameters as one block. cuLaunchKernel leaves this state unchanged. The
// manual says that the state is undefined afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "driver_abi/cuda_abi.h"

namespace gpurun::driver_abi {

// Any thread. The setters return 0 or the result of their function (manual, "Execution Control
// [DEPRECATED]"): INVALID_VALUE.
class LegacyLaunch {
 public:
  CUresult set_block_shape(int x, int y, int z);
  CUresult set_shared_bytes(unsigned bytes);
  // Sets the size of the parameter block. Bytes that set_parameter() has not written are 0.
  CUresult set_parameter_bytes(unsigned bytes);
  CUresult set_parameter(int offset, const void* value, std::size_t bytes);

  // Calls launch(block, shared_bytes, extra) with a copy. `extra` is cuLaunchKernel's parameter.
  template <typename Launch>
  CUresult launch(Launch&& launch) const {
    Settings now = copy();
    std::size_t bytes = now.parameters.size();
    // Never nullptr, which cuLaunchKernel would refuse.
    std::byte none{};
    void* start = bytes == 0 ? &none : now.parameters.data();
    void* extra[] = {reinterpret_cast<void*>(std::uintptr_t{1}), start,   // BUFFER_POINTER
                     reinterpret_cast<void*>(std::uintptr_t{2}), &bytes,  // BUFFER_SIZE
                     nullptr};                                            // END
    return launch(now.block, now.shared_bytes, extra);
  }

 private:
  struct Settings {
    unsigned block[3] = {};  // 0: never set. A launch refuses that.
    unsigned shared_bytes = 0;
    std::vector<std::byte> parameters;
  };
  Settings copy() const;

  mutable std::mutex mutex_;
  Settings settings_;                // Guarded by mutex_. Its parameters: all written bytes.
  std::size_t parameter_bytes_ = 0;  // Guarded by mutex_.
};

}  // namespace gpurun::driver_abi
