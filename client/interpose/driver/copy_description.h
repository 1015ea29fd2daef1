// Copy description: from the program's structures of two and three dimensions to the box of a copy.
#pragma once

#include <cstdint>

#include "client/interpose/call/forward.h"
#include "client/interpose/driver/copy_box.h"

namespace gpurun::client::interpose {

// One side, as the structure gives it.
struct DescribedSide {
  std::uint64_t x, y, z;
  CUmemorytype type;
  std::uint64_t host;
  CUdeviceptr device;
  CUarray array;
  std::uint64_t pitch, height;  // 0: as large as the copied box.
};

// A structure, before its sides are resolved.
struct DescribedCopy {
  bool sound = true;  // False: a field that must be zero is not.
  DescribedSide from, to;
  Copy copy;  // Without its sides.
};

DescribedCopy described(const CUDA_MEMCPY2D& in);
DescribedCopy described(const CUDA_MEMCPY3D& in);

// Fills both sides of `*copy`, which has the described size. Returns INVALID_VALUE for a wrong
// structure, and INVALID_HANDLE for a wrong array handle.
int resolve_sides(const EntryContext& here, const DescribedCopy& in, Copy* copy);

// The box of bytes that the structure describes, in as few lines as possible. Returns INVALID_VALUE
// for a wrong structure, and INVALID_HANDLE for a wrong array handle.
int describe_copy(const EntryContext& here, const CUDA_MEMCPY3D& given, Copy* copy);

}  // namespace gpurun::client::interpose
