// Decoding and rounding of matrix elements (PTX ISA, sections 5.2.3 and 9.7.14.2).
#include "emulated/runtime/matrix_formats.h"

#include <bit>
#include <cmath>
#include <limits>

namespace gpurun::emulated {
namespace {

// Decodes a small float: sign, then `exponent_bits`, then `mantissa_bits`. It has IEEE's infinities
// unless `finite`. With `finite` only all ones is NaN.
double small_float(std::uint32_t bits, int exponent_bits, int mantissa_bits, bool finite) {
  const std::uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
  const std::uint32_t exponent = bits >> mantissa_bits & ((1u << exponent_bits) - 1);
  const double sign = (bits >> (exponent_bits + mantissa_bits) & 1) != 0 ? -1 : 1;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  if (exponent == (1u << exponent_bits) - 1) {
    const bool nan = finite ? mantissa == (1u << mantissa_bits) - 1 : mantissa != 0;
    if (nan) return std::numeric_limits<double>::quiet_NaN();
    if (!finite) return sign * std::numeric_limits<double>::infinity();
  }
  // Built from its bits, because this runs for every element of every product.
  if (exponent == 0)
    return sign * mantissa *
           std::bit_cast<double>(std::uint64_t(1023 + 1 - bias - mantissa_bits) << 52);
  const std::uint64_t wide = std::uint64_t(static_cast<int>(exponent) - bias + 1023) << 52 |
                             std::uint64_t{mantissa} << (52 - mantissa_bits);
  return sign * std::bit_cast<double>(wide);
}

double sign_extended(std::uint64_t bits, unsigned width) {
  const unsigned shift = 64 - width;
  return static_cast<double>(static_cast<std::int64_t>(bits << shift) >> shift);
}

double single(std::uint64_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits)); }

}  // namespace

unsigned format_bits(MatrixFormat format) {
  switch (format) {
    case MatrixFormat::kF64:
      return 64;
    case MatrixFormat::kTf32:
    case MatrixFormat::kF32:
    case MatrixFormat::kS32:
      return 32;
    case MatrixFormat::kF16:
    case MatrixFormat::kBf16:
      return 16;
    case MatrixFormat::kS4:
    case MatrixFormat::kU4:
      return 4;
    case MatrixFormat::kB1:
      return 1;
    default:
      return 8;
  }
}

double format_value(MatrixFormat format, std::uint64_t bits) {
  const auto word = static_cast<std::uint32_t>(bits);
  switch (format) {
    case MatrixFormat::kF16:
      return small_float(word, 5, 10, false);
    case MatrixFormat::kBf16:
      return single(bits << 16 & 0xffff0000u);
    case MatrixFormat::kTf32:  // 10 bits of mantissa. Lower bits are ignored.
      return single(bits & 0xffffe000u);
    case MatrixFormat::kF32:
      return single(bits);
    case MatrixFormat::kF64:
      return std::bit_cast<double>(bits);
    case MatrixFormat::kE4m3:
      return small_float(word, 4, 3, true);
    case MatrixFormat::kE5m2:
      return small_float(word, 5, 2, false);
    case MatrixFormat::kS8:
      return sign_extended(bits, 8);
    case MatrixFormat::kU8:
      return word & 0xff;
    case MatrixFormat::kS4:
      return sign_extended(bits, 4);
    case MatrixFormat::kU4:
      return word & 0xf;
    case MatrixFormat::kB1:
      return word & 1;
    case MatrixFormat::kS32:
      return sign_extended(bits, 32);
  }
  return 0;
}

std::uint64_t format_rounded(MatrixFormat format, double value) {
  if (format == MatrixFormat::kF64) return std::bit_cast<std::uint64_t>(value);
  if (format == MatrixFormat::kF16) {
    if (std::isnan(value)) return 0x7fff;
    return std::bit_cast<std::uint16_t>(static_cast<_Float16>(value));
  }
  if (std::isnan(value)) return 0x7fffffff;
  return std::bit_cast<std::uint32_t>(static_cast<float>(value));
}

}  // namespace gpurun::emulated
