// Matrix values: values and formats of matrices for tests, with host types only.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "emulated/codegen/variant_table.h"

namespace gpurun::emulated::test {

inline unsigned width_of(std::string_view type) {
  if (type == "f64") return 64;
  if (type == "f32" || type == "tf32" || type == "s32") return 32;
  if (type == "f16" || type == "bf16") return 16;
  if (type == "s4" || type == "u4") return 4;
  return type == "b1" ? 1 : 8;
}

struct Element {
  std::uint64_t bits;
  double value;
};

// A random element. Its products and sums are exact in double (and, for C, often not in f16).
inline Element random_element(std::string_view type, std::mt19937_64& random) {
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  const double fraction = pick(-255, 255) / 16.0;
  if (type == "f64") return {std::bit_cast<std::uint64_t>(fraction), fraction};
  if (type == "f32" || type == "tf32") {
    return {std::bit_cast<std::uint32_t>(static_cast<float>(fraction)), fraction};
  }
  if (type == "f16") {
    return {std::bit_cast<std::uint16_t>(static_cast<_Float16>(fraction)), fraction};
  }
  if (type == "bf16") {
    return {std::bit_cast<std::uint32_t>(static_cast<float>(fraction)) >> 16, fraction};
  }
  if (type == "e4m3" || type == "e5m2") {
    const int mantissa_bits = type == "e4m3" ? 3 : 2;
    const int bias = type == "e4m3" ? 7 : 15;
    const int mantissa = pick(0, (1 << mantissa_bits) - 1);
    const int exponent = pick(0, bias + 3);
    const int sign = pick(0, 1);
    const double scale = std::ldexp(1.0, (exponent == 0 ? 1 : exponent) - bias - mantissa_bits);
    const double value = (mantissa + (exponent == 0 ? 0 : 1 << mantissa_bits)) * scale;
    return {static_cast<std::uint64_t>(sign << 7 | exponent << mantissa_bits | mantissa),
            sign != 0 ? -value : value};
  }
  if (type == "s32") {
    const int value = pick(0, 3) == 0 ? INT32_MAX - pick(0, 1000) : pick(-1000000, 1000000);
    return {static_cast<std::uint32_t>(value), static_cast<double>(value)};
  }
  const auto bits = static_cast<int>(width_of(type));
  const int low = type[0] == 's' ? -(1 << (bits - 1)) : 0;
  const int value = pick(low, low + (1 << bits) - 1);
  return {static_cast<std::uint64_t>(value) & ((1u << bits) - 1), static_cast<double>(value)};
}

// Element `index` of a dense array of elements.
inline void put(std::vector<std::uint8_t>& bytes, std::string_view type, std::size_t index,
                std::uint64_t bits) {
  const unsigned width = width_of(type);
  for (unsigned i = 0; i < width; ++i) {
    const std::size_t at = index * width + i;
    if ((bits >> i & 1) != 0) bytes[at / 8] |= static_cast<std::uint8_t>(1u << (at % 8));
  }
}

inline std::uint64_t get(const std::uint8_t* bytes, std::string_view type, std::size_t index) {
  const unsigned width = width_of(type);
  std::uint64_t value = 0;
  std::memcpy(&value, bytes + index * width / 8, width / 8);
  return value;
}

// The expected bits of a result of the type.
inline std::uint64_t rounded(std::string_view type, double value, bool saturate) {
  if (type == "f64") return std::bit_cast<std::uint64_t>(value);
  if (type == "f32") return std::bit_cast<std::uint32_t>(static_cast<float>(value));
  if (type == "f16") return std::bit_cast<std::uint16_t>(static_cast<_Float16>(value));
  if (saturate) value = std::min(std::max(value, -2147483648.0), 2147483647.0);
  return static_cast<std::uint32_t>(static_cast<std::int64_t>(value));
}

struct MatrixName {
  unsigned m = 0, n = 0, k = 0;
  std::vector<std::string> types;
  std::vector<std::string> layouts;
  bool saturate = false;
  bool exclusive = false;
};

inline MatrixName parse_name(const std::string& name) {
  MatrixName out;
  std::string part;
  for (const char c : name + ".") {
    if (c != '.') {
      part += c;
      continue;
    }
    unsigned m, n, k;
    if (std::sscanf(part.c_str(), "m%un%uk%u", &m, &n, &k) == 3) {
      out.m = m;
      out.n = n;
      out.k = k;
    } else if (part == "row" || part == "col") {
      out.layouts.push_back(part);
    } else if (part == "satfinite") {
      out.saturate = true;
    } else if (part == "xor") {
      out.exclusive = true;
    } else if (part.find_first_of("0123456789") != std::string::npos) {
      out.types.push_back(part);
    }
    part.clear();
  }
  return out;
}

// C + A * B. For b1 it is C plus the number of bits that differ (or agree).
inline double dot(const MatrixName& name, const std::vector<Element>& a,
                  const std::vector<Element>& b, double c, unsigned row, unsigned column) {
  for (unsigned k = 0; k < name.k; ++k) {
    const double x = a[row * name.k + k].value;
    const double y = b[k * name.n + column].value;
    c += name.exclusive ? (x != y ? 1 : 0) : x * y;
  }
  return c;
}

inline std::vector<Element> random_matrix(std::string_view type, std::size_t count,
                                          std::mt19937_64& random) {
  std::vector<Element> out;
  for (std::size_t i = 0; i < count; ++i) out.push_back(random_element(type, random));
  return out;
}

}  // namespace gpurun::emulated::test
