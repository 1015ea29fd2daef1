// Native functions: the plain C functions that compiled code calls besides RuntimeFunctions, by
// name.
#pragma once

#include <span>

namespace gpurun::emulated {

struct NativeFunction {
  const char* name;
  void* address;
};

// The functions of arithmetic and number formats. They are pure, and any thread may call them.
std::span<const NativeFunction> native_functions();

}  // namespace gpurun::emulated
