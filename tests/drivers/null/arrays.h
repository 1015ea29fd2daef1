// CUDA arrays of the null device: plain memory without gaps.
#pragma once

#include <cstddef>
#include <optional>

#include "driver_abi/cuda_abi.h"

namespace gpurun::null_device {

struct ArrayMemory {
  unsigned char* start;
  std::size_t pitch;   // Bytes of a line,
  std::size_t height;  // lines of a slice,
  std::size_t depth;   // slices.
};

// nullopt: not an array of cuArrayCreate or cuArray3DCreate.
std::optional<ArrayMemory> array_memory(CUarray array);

}  // namespace gpurun::null_device
