// What fails, made smaller: without the steps that it fails without.
#pragma once

#include <string>

#include "tests/model/cuda_program.h"

namespace gpurun::model {

// The program that is being run; empty between two.
CudaProgram& failing_program();
// For report::explain: that program, and a smaller one that fails, too. This executable runs each,
// as scenario "programs" with GPURUN_MODEL_PROGRAM.
std::string explain_program();

}  // namespace gpurun::model
