// Narrow floats: conversions of 8-bit float formats for compiled code (PTX ISA, section 5.2.3).
// e4m3 has no infinity and one NaN. e5m2 is IEEE-like.
#pragma once

#include <cstdint>

namespace gpurun::emulated {

// The nearest value, ties to even. Values beyond the largest finite number become that number. NaN
// becomes 0x7f.
std::uint32_t narrow_to_e4m3(float value);
std::uint32_t narrow_to_e5m2(float value);
// The value of the low byte.
float widen_e4m3(std::uint32_t byte);
float widen_e5m2(std::uint32_t byte);

}  // namespace gpurun::emulated
