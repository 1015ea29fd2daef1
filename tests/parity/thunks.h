// Thunks: direct calls through cuda.h's own prototypes, as a program's compiler would make them.
#pragma once

#include <cstdint>

// Calls `function`, which has the prototype of that opcode's symbol in cuda.h. arguments[i] points
// to the i-th argument. Returns -1 when there is no such opcode.
int call_by_cuda_h(std::uint16_t opcode, void* function, void* const* arguments);

// As call_by_cuda_h(), but with our own header, for rows that are newer than this machine's cuda.h.
int call_by_our_header(std::uint16_t opcode, void* function, void* const* arguments);

// False if no cuda.h of CUDA 13 or newer is installed.
bool has_cuda_h();
