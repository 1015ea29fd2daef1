// Device printf: formats the arguments of a kernel's vprintf, as CUDA packs them.
#pragma once

#include <cstdint>
#include <string>

namespace gpurun::emulated {

// Appends to `*text`. Arguments are packed as after C's promotions, each at a multiple of its size:
// 4 bytes for int, 8 for long, long long, double and pointers. Source: CUDA C++ Programming Guide,
// "Formatted output". The packing is what nvcc emits for vprintf. Returns the number of arguments
// that the format consumed, or -1 for a conversion that CUDA does not know. The text formatted
// before that conversion stays. Reads device memory, so it may fault.
int format_device_print(const char* format, const std::uint8_t* arguments, std::string* text);

// The string at a device address, cut after 64 KiB.
std::string bounded_device_string(std::uint64_t address);

}  // namespace gpurun::emulated
