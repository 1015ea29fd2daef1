// JIT options: the meaning of the compiler options' values (CUDA Driver API manual,
// "CUjit_option").
#pragma once

#include "driver_abi/cuda_abi.h"

namespace gpurun::driver_abi {

// Whether the value points to data of the program, or counts such data. In another process it means
// nothing. False for the logs' buffers and the wall time, which are outputs.
inline bool points_to_program_data(int option) noexcept {
  switch (option) {
    case CU_JIT_GLOBAL_SYMBOL_NAMES:
    case CU_JIT_GLOBAL_SYMBOL_ADDRESSES:
    case CU_JIT_GLOBAL_SYMBOL_COUNT:
    case CU_JIT_REFERENCED_KERNEL_NAMES:
    case CU_JIT_REFERENCED_KERNEL_COUNT:
    case CU_JIT_REFERENCED_VARIABLE_NAMES:
    case CU_JIT_REFERENCED_VARIABLE_COUNT:
      return true;
    default:
      return false;
  }
}

}  // namespace gpurun::driver_abi
