// printf of kernels: formats on the device what vprintf got, as CUDA packs it.
#pragma once

#include <cstdint>
#include <string>

namespace gpurun::emulated {

// Appends to `*text`. Arguments are packed as after C's promotions, each at a multiple of its size:
// 4 bytes for int, 8 for long, long long, double and pointers (CUDA C++ Programming Guide,
// "Formatted output"; the packing is what nvcc emits for vprintf). Returns the number of arguments
// that the format consumed, or -1 for a conversion that CUDA does not know (what was formatted
// before it stays). Reads device memory: may fault.
int format_device_print(const char* format, const std::uint8_t* arguments, std::string* text);

// The string at a device address, cut after 64 KiB.
std::string bounded_device_string(std::uint64_t address);

}  // namespace gpurun::emulated
