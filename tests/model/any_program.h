// Small CUDA programs at random, for the order model.
#pragma once

#include "tests/model/cuda_program.h"

namespace gpurun::model {

// 2 to 10 steps, of few places and kinds, so that they meet. By choose().
CudaProgram any_program();

}  // namespace gpurun::model
