// What any launch, from the host or from a kernel, may ask of a multiprocessor.
#pragma once

#include <cstdint>

#include "server/emulated/engine/engine.h"
#include "server/emulated/module/module.h"

namespace gpurun::emulated {

// Limits of every device since capability 3.0 (Programming Guide, "Technical Specifications").
bool extents_allowed(const Extent& grid, const Extent& block);

// Blocks of such a kernel that a multiprocessor holds at once; 0: not even one.
int resident_blocks(const KernelAttributes& attributes, std::uint32_t dynamic_shared_bytes_max,
                    std::uint64_t block_threads, std::uint64_t dynamic_shared_bytes);

// Shared memory that a multiprocessor has for its blocks.
std::uint64_t shared_per_multiprocessor();

// It is given out in pieces of so many bytes.
inline constexpr std::uint64_t kSharedPiece = 128;

}  // namespace gpurun::emulated
