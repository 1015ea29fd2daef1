// Matrix formats: the number formats of matrix operands, with their bits and their values as
// double. The double is exact for every format, except for integers of more than 53 bits, which do
// not occur.
#pragma once

#include <cstdint>

namespace gpurun::emulated {

enum class MatrixFormat : std::uint8_t {
  kF16,
  kBf16,
  kTf32,
  kF32,
  kF64,
  kE4m3,
  kE5m2,
  kS8,
  kU8,
  kS4,
  kU4,
  kB1,
  kS32,
};

unsigned format_bits(MatrixFormat format);

// The value of the low bits of `bits`.
double format_value(MatrixFormat format, std::uint64_t bits);
// The nearest value of kF16, kF32 or kF64. Ties go to even, and NaN is as NVIDIA's devices write
// it.
std::uint64_t format_rounded(MatrixFormat format, double value);

}  // namespace gpurun::emulated
