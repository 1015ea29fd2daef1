// How a program tells the driver of refusing_driver.cc, which serves it on the other side of the
// wire, to refuse calls: cuMemsetD32Async of device memory of its own, with a value that names the
// function and the code; as many elements, as many of its calls are refused. Whoever synchronises
// behind it knows that it has been told.
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

// `code`: a CUresult under 65,536.
constexpr unsigned refusal_value(Refusable function, int code) {
  return kRefusalMark | function << kRefusalFunctionShift | static_cast<unsigned>(code);
}

}  // namespace gpurun
