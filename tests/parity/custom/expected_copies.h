// Expected copies: the copies that a worker makes of one line of bytes. All are asynchronous, in
// the call's stream, and in pieces if the bytes travel as bulk.
#pragma once

#include <algorithm>

#include "protocol/limits.h"
#include "tests/parity/custom/trial_cuda.h"

namespace gpurun::parity {

// The place of bytes: device memory, or the program's memory.
enum class Lies { kDevice, kHost };

// Call it within Trial::direct_call().
inline CUresult copy_line(Trial& t, Lies to_lies, void* to, Lies from_lies, const void* from,
                          std::size_t bytes, const Both<CUstream>& stream) {
  const auto address = [](const void* place) { return reinterpret_cast<CUdeviceptr>(place); };
  if (to_lies == Lies::kDevice && from_lies == Lies::kDevice) {
    return t.call_direct(FN(cuMemcpyDtoDAsync_v2), address(to), address(from), bytes, stream);
  }
  const bool out = to_lies == Lies::kHost;
  const std::size_t piece = limits::kBulkChunkBytes;  // Smaller copies go whole in the record.
  CUresult result = CUDA_SUCCESS;
  for (std::size_t at = 0; at < bytes && result == CUDA_SUCCESS; at += piece) {
    const std::size_t count = std::min(piece, bytes - at);
    result = out ? t.call_direct(FN(cuMemcpyDtoHAsync_v2), static_cast<char*>(to) + at,
                                 address(from) + at, count, stream)
                 : t.call_direct(FN(cuMemcpyHtoDAsync_v2), address(to) + at,
                                 static_cast<const char*>(from) + at, count, stream);
  }
  return result;
}

}  // namespace gpurun::parity
