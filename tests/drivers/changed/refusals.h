// Refusals: lets a program make the changed device refuse calls, across the wire. The program fills
// its own device memory by cuMemsetD32Async. The value names the function and the code. The element
// count is the number of calls to refuse. The request has arrived when the program has
// synchronized.
#pragma once

#include <cstdlib>
#include <string_view>

namespace gpurun {

// The functions that a program can name.
inline constexpr const char* kRefusable[] = {
    "cuStreamCreate",      "cuEventCreate",       "cuModuleLoadDataEx",
    "cuModuleGetFunction", "cuLibraryLoadData",   "cuGraphCreate",
    "cuGraphClone",        "cuGraphAddEmptyNode", "cuMemsetD8Async"};

inline constexpr unsigned kRefusalMask = 0xff000000;
inline constexpr unsigned kRefusalMark = 0x5e000000;
inline constexpr unsigned kRefusalFunctionShift = 16;

// `code` is a CUresult below 65,536. Ends the process if the function is not in the list.
inline unsigned refusal_value(std::string_view function, int code) {
  unsigned index = 0;
  for (const char* const name : kRefusable) {
    if (name == function) {
      return kRefusalMark | index << kRefusalFunctionShift | static_cast<unsigned>(code);
    }
    ++index;
  }
  std::abort();
}

}  // namespace gpurun
