// Linked image: an image that links PTX texts without translating them. The emulated device's
// linker (cuLinkComplete) and our stand-in for nvJitLink return it in place of machine code. The
// emulated device takes it as one module.
//
// It is a fat binary container (fatbin.h) with one PTX entry for each text, all of the same name.
// In a container of nvcc's only one of the PTX entries is used. Pure functions, any thread.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "driver_abi/fatbin.h"

namespace gpurun::driver_abi {

// The name of the entries that belong together.
inline constexpr char kLinkedEntryName[] = "gpurun-linked";

// A container of these texts, in their order. Checks nothing in them.
Bytes linked_image(const std::vector<std::string>& texts);

// Whether the entry belongs to such a container.
bool is_linked_entry(const FatbinEntry& entry);

// The PTX text of an entry, decompressed and without its NUL. Fails as fatbin_content() does.
Result<std::string> ptx_text(const FatbinEntry& entry);

}  // namespace gpurun::driver_abi
