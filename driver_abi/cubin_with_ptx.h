// Cubin with PTX: machine code that carries the PTX that it was made from.
//
// gpurun's ptxas (client/cuda_tools) adds a section to the real ptxas's output. Its name is
// kPtxSection, and it holds a linked image (linked_image.h) of the PTX. A GPU's driver, nvlink
// and fatbinary do not look into a section of that name, so the output serves a GPU as
// before. nvlink joins those of its inputs. The emulated device runs the PTX in it.
//
// ptxas itself stores its PTX with line information or debug information (-lineinfo, -G), in a
// section kDebugPtxSection: each line ends with a NUL, without comments and .loc. nvlink keeps
// these sections, and adds a number to their names.
//
// Input is hostile. No function reads outside its view. Pure functions, safe from any thread.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace gpurun::driver_abi {

inline constexpr char kPtxSection[] = ".gpurun.ptx";
inline constexpr char kDebugPtxSection[] = ".nv_debug_ptx_txt";

// The ELF image with that section behind everything else. Fails with CUDA_ERROR_INVALID_IMAGE for
// damaged input, and for one that has more sections than 16 bits count.
Result<Bytes> cubin_with_ptx(ByteView cubin, const std::vector<std::string>& texts);

// The PTX in an ELF image as a linked image: that of kPtxSection, or else of all debug sections.
// Empty: it has neither. Fails with CUDA_ERROR_INVALID_IMAGE for damaged input.
Result<Bytes> carried_ptx(ByteView elf);

}  // namespace gpurun::driver_abi
