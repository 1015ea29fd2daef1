// cuda.h with every version of every function, and the trials that take their types from it.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include "tests/every_row/custom/trial.h"
