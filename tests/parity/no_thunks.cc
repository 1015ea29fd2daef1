// No direct calls, for machines that lack a cuda.h of CUDA 13 or newer.
#include "tests/parity/thunks.h"

int call_by_cuda_h(std::uint16_t, void*, void* const*) { return -1; }
bool has_cuda_h() { return false; }
