// Neighbours: the other code images of the shared object or program that an image belongs to.
#pragma once

#include <cstddef>
#include <vector>

namespace gpurun::client::interpose::modules {

// nvcc's registration code keeps one wrapper (driver_abi/image_length.h) for each source file in
// the section .nvFatBinSegment. The linker places them side by side. Returns the wrappers that
// adjoin `wrapper` without a gap, nearest first, without `wrapper` itself. They are of version 1
// and have an image inside the same object. Empty when `wrapper` lies in no loaded object, as for
// an image that the program made itself.
inline constexpr std::size_t kAdjacentMax = 256;
std::vector<const void*> adjacent_wrappers(const void* wrapper);

}  // namespace gpurun::client::interpose::modules
