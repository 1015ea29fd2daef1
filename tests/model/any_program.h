// Random programs: small CUDA programs at random, for the order model.
#pragma once

#include "tests/model/cuda_program.h"

namespace gpurun::model {

// A program of 2 to 10 steps, chosen by choose(). It has few places and kinds, so that steps
// interact.
CudaProgram any_program();

}  // namespace gpurun::model
