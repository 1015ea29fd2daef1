// Where the program's call came from, for the few answers that depend on it.
#pragma once

namespace gpurun::emulated {

// Exported entry points whose answer depends on the caller set this to their own return address
// before they go on; per thread. Without it the caller counts as the application.
void set_program_return_address(const void* address);
const void* program_return_address();

// The compute capability that the code at `return_address` is told; see settings.h.
int capability_for_caller(const void* return_address);

}  // namespace gpurun::emulated
