// Refusals: lets a program make the driver of refusing_driver.cc refuse calls, across the wire. The
// program fills its own device memory by cuMemsetD32Async. The value names the function and the
// code. The element count is the number of calls to refuse. The request has arrived when the
// program has synchronized.
#pragma once

namespace gpurun {

enum Refusable : unsigned {
  kRefuseStreamCreate,
  kRefuseEventCreate,
  kRefuseModuleLoadDataEx,
  kRefuseModuleGetFunction,
  kRefuseLibraryLoadData,
  kRefuseGraphCreate,
  kRefuseGraphClone,
  kRefuseGraphAddEmptyNode,
  kRefuseMemsetD8Async,
  kRefusableCount
};

inline constexpr unsigned kRefusalMask = 0xff000000;
inline constexpr unsigned kRefusalMark = 0x5e000000;
inline constexpr unsigned kRefusalFunctionShift = 16;

// `code` is a CUresult below 65,536.
constexpr unsigned refusal_value(Refusable function, int code) {
  return kRefusalMark | function << kRefusalFunctionShift | static_cast<unsigned>(code);
}

}  // namespace gpurun
