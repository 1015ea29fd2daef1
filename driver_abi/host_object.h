// Host objects: finds the fat binaries in a host compiler's output for CUDA code. That output is
// ELF objects and archives of them, which linkers take as CU_JIT_INPUT_OBJECT and
// CU_JIT_INPUT_LIBRARY.
//
// nvcc puts containers (fatbin.h) into a section of its own, one after the other. The section is
// `.nv_fatbin` for whole programs and `__nv_relfatbin` for relocatable device code (seen in objects
// of nvcc 13.0 and in libcudadevrt.a). Archives are ar(5) of GNU binutils: "!<arch>\n", then
// members with headers of 60 bytes, at even offsets.
//
// Input is hostile. No function reads outside its view. Pure functions, safe from any thread.
#pragma once

#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace gpurun::driver_abi {

// The most containers of one object or archive. Above that, CUDA_ERROR_INVALID_IMAGE.
inline constexpr std::size_t kObjectContainersMax = 65'536;

bool is_archive(ByteView bytes);

// The containers of an object or archive, in file order. They borrow `bytes`. Skips members of an
// archive that are not 64-bit ELF objects. Empty: the input has no container. Fails with
// CUDA_ERROR_INVALID_IMAGE for damaged input and for input of another kind.
Result<std::vector<ByteView>> containers_in_object(ByteView bytes);

}  // namespace gpurun::driver_abi
