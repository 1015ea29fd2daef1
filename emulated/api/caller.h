// Caller: the code that made the program's call, for the few answers that depend on it.
#pragma once

namespace gpurun::emulated {

// Some exported entry points answer by caller. They set this to their own return address before
// they go on. Per thread. Without it the caller counts as the application.
void set_program_return_address(const void* address);
const void* program_return_address();

// The compute capability that the code at `return_address` sees (settings.h).
int capability_for_caller(const void* return_address);

}  // namespace gpurun::emulated
