// ABI of nvJitLink (nvJitLink.h of CUDA 12.0 to 13.5): numbers that never changed, and types that
// are pointers and integers.
#pragma once

namespace gpurun::nvjitlink {

enum Outcome : int {
  kSuccess = 0,
  kInvalidInput = 3,
  kInternal = 6,
  kUnrecognizedInput = 8,
  kFinalize = 9,
  kNullInput = 10,
};

enum InputType : int {
  kCubin = 1,
  kPtx = 2,
  kLtoIr = 3,
  kFatbin = 4,
  kObject = 5,
  kLibrary = 6,
  kIndex = 7,
  kAny = 10,
};

}  // namespace gpurun::nvjitlink
