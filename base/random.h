// Random bytes from the kernel, fit for secrets.
#pragma once

#include "base/bytes.h"
#include "base/result.h"

namespace gpurun {

// Fills all of `into`. Blocks only while the machine boots. An error is that of getrandom(2).
Status fill_random(MutableBytes into);

// Array: std::array of bytes.
template <typename Array>
Result<Array> random_array() {
  Array array;
  GPURUN_RETURN_IF_ERROR(fill_random(mutable_bytes(array.data(), array.size())));
  return array;
}

}  // namespace gpurun
