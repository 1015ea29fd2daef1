// The image that links PTX texts without translating them: what the emulated device's linker
// (cuLinkComplete) and our stand-in for nvJitLink hand out in place of machine code, and what the
// emulated device takes as one module.
//
// It is a fat binary container (fatbin.h) with one PTX entry for each text, all of them of the same
// name; in a container of nvcc's only one of the PTX entries is taken. Pure functions, any thread.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "driver_abi/fatbin.h"

namespace gpurun::driver_abi {

// Name of the entries that belong together.
inline constexpr char kLinkedEntryName[] = "gpurun-linked";

// A container of these texts, in their order. Nothing of them is checked.
Bytes linked_image(const std::vector<std::string>& texts);

// Whether the entry is one of such a container's.
bool is_linked_entry(const FatbinEntry& entry);

// The PTX text of an entry, decompressed and without its NUL; fails as fatbin_content() does.
Result<std::string> ptx_text(const FatbinEntry& entry);

}  // namespace gpurun::driver_abi
