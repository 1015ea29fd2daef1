// Record: writes each call of the null device to a file, with its arguments before it runs and its
// outputs after it. The rule `record` of a script asks for it (tests/drivers/script.h).
//
// GPURUN_RECORDING_FILE names the file. Without it nothing is written. Each call is one line:
//   SYMBOL(name=value, ...) = CUresult name=value ...
//
// Values are canonical, so that lines of two runs can be compared. Integers and handles are in hex,
// and texts are in quotes. Structures and arrays are the hex of their bytes, or their count and a
// hash if they are longer than kBytesShown. NULL is null, and an output before the call is `out`.
// opaque.h gives the text of parameters that the row calls opaque.
//
// GPURUN_RECORDING_CONTEXTS adds `context`, the context that is current on the calling thread.
#pragma once

#include <string>

#include "driver_abi/cuda_abi.h"
#include "driver_abi/row.h"

namespace gpurun::recording {

inline constexpr std::size_t kBytesShown = 512;

// Lives for one call. Any thread may use it. Lines of different calls do not mix.
class Call {
 public:
  // Borrows both until done().
  Call(const driver_abi::Row& row, void* const* arguments);
  CUresult done(CUresult result);

 private:
  const driver_abi::Row& row_;
  void* const* arguments_;
  std::string line_;
};

}  // namespace gpurun::recording
