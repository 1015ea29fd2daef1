// ELF sections: the sections of a 64-bit ELF object, by name.
//
// Input is hostile. No function reads outside its view. Pure functions, safe from any thread.
#pragma once

#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace gpurun::driver_abi {

struct ElfSection {
  std::string_view name;
  ByteView bytes;  // Empty for a section without bytes in the file.
};

bool is_elf(ByteView bytes);

// In file order. The views borrow `object`. A section without a readable name is left out. Fails
// with CUDA_ERROR_INVALID_IMAGE for damaged input.
Result<std::vector<ElfSection>> elf_sections(ByteView object);

}  // namespace gpurun::driver_abi
