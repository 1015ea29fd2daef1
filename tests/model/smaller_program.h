// Smaller programs: makes a failing program smaller, by removing steps without which it still
// fails.
#pragma once

#include <string>

#include "tests/model/cuda_program.h"

namespace gpurun::model {

// The program that runs now. Empty between two programs.
CudaProgram& failing_program();
// For report::explain: that program, and a smaller one that also fails. This executable runs both,
// as scenario "programs" with GPURUN_MODEL_PROGRAM.
std::string explain_program();

}  // namespace gpurun::model
