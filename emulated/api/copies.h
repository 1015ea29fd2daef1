// Copies: the checks of copies and fills that calls and graph nodes share.
#pragma once

#include "emulated/api/entry.h"
#include "emulated/objects/copy.h"

namespace gpurun::emulated {

enum class CopyPlace : std::uint8_t {
  kHost,     // Memory of the process. Device memory must be allocated.
  kDevice,   // Known to CUDA. Also an array, once a box was found to be inside.
  kUnified,  // Known to CUDA or pageable.
};

struct CopyCall {
  CopyBox box;
  CopyPlace source = CopyPlace::kUnified;
  CopyPlace destination = CopyPlace::kUnified;
  bool wait = false;
  // Reads a source on the host at the call, not in stream order.
  bool read_now = false;
  std::shared_ptr<const CUDA_MEMCPY3D> described;  // As CopyOperation's.
};

// Whether the program itself reads and writes the memory there: pageable, pinned or managed. A
// synchronous call that accesses such memory returns only when the access is done.
bool is_seen_by_host(std::uint64_t address);

// Checks both sides and issues the copy. Where CUDA waits for it, runs it and waits for it.
CUresult issue_copy(CUstream handle, const CopyCall& call);

// One side of a copy, as CUDA's structures describe it. `box` has the extents.
struct CopySideWords {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  CUarray array;
  std::uint64_t x_bytes, y, z;
  std::uint64_t pitch, height;  // 0: as the box.
};
// INVALID_VALUE, INVALID_HANDLE (of an array).
CUresult find_side(const CopySideWords& from, const CopyBox& box, CopyPlace* place, BoxSide* out);

// The structure that CopyOperation remembers, if it names an array. Otherwise null.
std::shared_ptr<const CUDA_MEMCPY3D> array_description(const CUDA_MEMCPY3D& from);
// The box that the structure describes, with both sides checked. INVALID_VALUE, NOT_SUPPORTED.
CUresult make_copy_box(const CUDA_MEMCPY3D& from, CopyBox* box);
// INVALID_VALUE when the memory is not all the device's.
CUresult check_fill(const Fill& what);

}  // namespace gpurun::emulated
