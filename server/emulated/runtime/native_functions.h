// The plain C functions that compiled code calls besides RuntimeFunctions, by name.
#pragma once

#include <span>

namespace gpurun::emulated {

struct NativeFunction {
  const char* name;
  void* address;
};

// Pure and safe to call from any thread.
std::span<const NativeFunction> native_functions();

}  // namespace gpurun::emulated
