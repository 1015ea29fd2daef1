// Launch limits: what a launch, from the host or from a kernel, may ask of a multiprocessor.
#pragma once

#include <cstdint>

#include "emulated/engine/engine.h"
#include "emulated/module/module.h"

namespace gpurun::emulated {

// Limits of every device since capability 3.0 (Programming Guide, "Technical Specifications").
bool extents_allowed(const Extent& grid, const Extent& block);

// The number of blocks of such a kernel that a multiprocessor holds at once. 0: not even one.
int resident_blocks(const KernelAttributes& attributes, std::uint32_t dynamic_shared_bytes_max,
                    std::uint64_t block_threads, std::uint64_t dynamic_shared_bytes);

// The shared memory that a multiprocessor has for its blocks.
std::uint64_t shared_per_multiprocessor();

// Shared memory is allocated in pieces of this many bytes.
inline constexpr std::uint64_t kSharedPiece = 128;

}  // namespace gpurun::emulated
