// Random programs without a race, for the mirror model.
#pragma once

#include "tests/model/mirror_program.h"

namespace gpurun::model {

// A program of up to 12 steps, chosen by choose().
MirrorProgram any_mirror_program();

}  // namespace gpurun::model
