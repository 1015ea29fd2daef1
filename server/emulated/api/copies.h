// Checks of copies and fills that calls and graph nodes share.
#pragma once

#include "server/emulated/api/entry.h"
#include "server/emulated/objects/copy.h"

namespace gpurun::emulated {

// The box that the structure describes, with both sides checked. INVALID_VALUE, NOT_SUPPORTED.
CUresult make_copy_box(const CUDA_MEMCPY3D& from, CopyBox* box);
// INVALID_VALUE when the memory is not all the device's.
CUresult check_fill(const Fill& what);

}  // namespace gpurun::emulated
