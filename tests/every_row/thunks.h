// Direct calls through cuda.h's own prototypes: what a program's compiler would make of each call.
#pragma once

#include <cstdint>

// Calls `function`, which has the prototype of that opcode's symbol in cuda.h; arguments[i] points
// to the i-th argument. -1 when there is no such opcode.
int call_by_cuda_h(std::uint16_t opcode, void* function, void* const* arguments);

// The same by our own header, for rows that this machine's cuda.h is too old for.
int call_by_our_header(std::uint16_t opcode, void* function, void* const* arguments);

// False where no cuda.h of CUDA 13 or newer is installed.
bool has_cuda_h();
