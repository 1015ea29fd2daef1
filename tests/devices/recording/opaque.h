// Texts of what rows call opaque: structures with pointers in them, parameters of kernels, code
// images. By contents, so that two calls which mean the same read the same: parameters of a kernel
// are the bytes of their block, however they are given. `opaque` is left for pointers that mean
// something to the caller alone.
#pragma once

#include <cstdint>
#include <string>

#include "driver_abi/row.h"

namespace gpurun::recording {

std::string opaque_text(const driver_abi::Row& row, void* const* arguments, std::size_t index);

// record.cc
std::string hex(std::uint64_t value);
std::string bytes_text(const void* place, std::uint64_t count);

}  // namespace gpurun::recording
