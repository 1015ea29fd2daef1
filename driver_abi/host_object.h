// Finds the fat binaries in what a host compiler has made of CUDA code: ELF objects and archives of
// them, which linkers take as CU_JIT_INPUT_OBJECT and CU_JIT_INPUT_LIBRARY.
//
// nvcc puts containers (fatbin.h) into a section of its own, several one behind the other:
// `.nv_fatbin` of whole programs, `__nv_relfatbin` of relocatable device code (seen in objects of
// nvcc 13.0 and in libcudadevrt.a). Archives are ar(5) of GNU binutils: "!<arch>\n", then members
// with headers of 60 bytes, at even offsets.
//
// Input is hostile: nothing is read outside of the view. Pure functions, safe from any thread.
#pragma once

#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace gpurun::driver_abi {

// Containers of one object or archive; CUDA_ERROR_INVALID_IMAGE beyond.
inline constexpr std::size_t kObjectContainersMax = 65'536;

bool is_archive(ByteView bytes);

// The containers of an object or archive, in file order; they borrow `bytes`. Members of an archive
// that are no 64-bit ELF objects are passed over. Empty: there is none. CUDA_ERROR_INVALID_IMAGE:
// neither object nor archive, or damaged.
Result<std::vector<ByteView>> containers_in_object(ByteView bytes);

}  // namespace gpurun::driver_abi
