// Direct calls through cuda.h's own prototypes: what a program's compiler would make of each call.
#pragma once

#include <cstdint>

// Calls `function`, which has the prototype of that opcode's symbol in cuda.h; arguments[i] points
// to the i-th argument. -1 when there is no such opcode here.
int call_by_cuda_h(std::uint16_t opcode, void* function, void* const* arguments);

// False where no cuda.h of the table's version is installed.
bool has_cuda_h();
