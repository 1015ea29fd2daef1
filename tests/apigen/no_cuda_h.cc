// No cuda.h: stands in where no cuda.h of CUDA 13 or newer is installed.
#include "tests/apigen/facts.h"

Facts facts_of_cuda_h() { return {}; }
int version_of_cuda_h() { return 0; }
