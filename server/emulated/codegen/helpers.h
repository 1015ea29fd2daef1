// The plain C functions that compiled code calls besides RuntimeFunctions, by name.
#pragma once

#include <span>

namespace gpurun::emulated {

struct Helper {
  const char* name;
  void* address;
};

// Pure and safe to call from any thread.
std::span<const Helper> helpers();

}  // namespace gpurun::emulated
