// Rounding to 8-bit formats with the arithmetic of double, which is exact here.
#include "emulated/runtime/narrow_floats.h"

#include <algorithm>
#include <cmath>

#include "emulated/runtime/matrix_formats.h"

namespace gpurun::emulated {
namespace {

struct ByteFormat {
  int mantissa_bits;
  int least_exponent;  // Of normal numbers.
  double most;         // The largest finite number.
};

constexpr ByteFormat kE4m3 = {3, -6, 448};
constexpr ByteFormat kE5m2 = {2, -14, 57344};

std::uint32_t narrow(float value, const ByteFormat& format) {
  if (std::isnan(value)) return 0x7f;
  const std::uint32_t sign = std::signbit(value) ? 0x80 : 0;
  const double size = std::min(std::fabs(static_cast<double>(value)), format.most);
  const int exponent =
      size == 0 ? format.least_exponent : std::max(std::ilogb(size), format.least_exponent);
  // In units of the last place. Rounding may lead to the next power of two. Its bit pattern follows
  // directly.
  const double units = std::ldexp(size, format.mantissa_bits - exponent);
  const double below = std::floor(units);
  const double rest = units - below;
  auto whole = static_cast<std::uint32_t>(below);
  if (rest > 0.5 || (rest == 0.5 && whole % 2 == 1)) ++whole;
  const auto steps = static_cast<std::uint32_t>(exponent - format.least_exponent);
  return sign | ((steps << format.mantissa_bits) + whole);
}

}  // namespace

std::uint32_t narrow_to_e4m3(float value) { return narrow(value, kE4m3); }
std::uint32_t narrow_to_e5m2(float value) { return narrow(value, kE5m2); }

float widen_e4m3(std::uint32_t byte) {
  return static_cast<float>(format_value(MatrixFormat::kE4m3, byte));
}
float widen_e5m2(std::uint32_t byte) {
  return static_cast<float>(format_value(MatrixFormat::kE5m2, byte));
}

}  // namespace gpurun::emulated
