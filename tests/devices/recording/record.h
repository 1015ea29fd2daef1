// The recording device: the null device, and every call is written down with its arguments before
// it runs and with its outputs after.
//
// GPURUN_RECORDING_FILE names the file; without it nothing is written. One line a call:
//   SYMBOL(name=value, ...) = CUresult name=value ...
// Values are canonical, so that lines of two runs can be compared: integers and handles in hex,
// structures and arrays as the hex of their bytes (over kBytesShown: their count and a hash), texts
// in quotes, null for NULL, `out` for an output before the call; what the row calls opaque as
// opaque.h says. With GPURUN_RECORDING_CONTEXTS
// one more: `context`, the one that is current on the calling thread.
#pragma once

#include <string>

#include "driver_abi/cuda_abi.h"
#include "driver_abi/row.h"

namespace gpurun::recording {

inline constexpr std::size_t kBytesShown = 512;

// Lives for one call. Any thread; lines of different calls do not mix.
class Call {
 public:
  // Both are borrowed until done().
  Call(const driver_abi::Row& row, void* const* arguments);
  CUresult done(CUresult result);

 private:
  const driver_abi::Row& row_;
  void* const* arguments_;
  std::string line_;
};

}  // namespace gpurun::recording
