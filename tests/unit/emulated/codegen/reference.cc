// Reference: types, rounding and operands for the tests.
#include "reference.h"

#include <bit>
#include <cmath>
#include <random>

#include "emulated/codegen/variant_table.h"
#include "emulated/ptx/types.h"

namespace gpurun::emulated::test {
namespace {

Wide power_of_two(int exponent) { return std::ldexp(1.0L, exponent); }

Wide magnitude(Wide value) { return value < 0 ? -value : value; }

int sign_of(Wide value) { return value < 0 ? -1 : value > 0 ? 1 : 0; }

int exponent_of(Wide value) {
  int exponent = std::ilogb(static_cast<long double>(value));
  if (magnitude(value) < power_of_two(exponent)) --exponent;
  return exponent;
}

struct FloatName {
  const char* name;
  unsigned bits, lanes;
  int precision, least, most;
  const char* scalar;
};
constexpr FloatName kFloats[] = {
    {"f16", 16, 1, 11, -14, 15, "f16"},     {"f16x2", 32, 2, 11, -14, 15, "f16"},
    {"bf16", 16, 1, 8, -126, 127, "bf16"},  {"bf16x2", 32, 2, 8, -126, 127, "bf16"},
    {"f32", 32, 1, 24, -126, 127, "f32"},   {"f32x2", 64, 2, 24, -126, 127, "f32"},
    {"f64", 64, 1, 53, -1022, 1023, "f64"}, {"tf32", 32, 1, 11, -126, 127, "tf32"},
    {"e4m3x2", 16, 2, 4, -6, 8, "e4m3"},    {"e5m2x2", 16, 2, 3, -14, 15, "e5m2"},
};

}  // namespace

TypeFacts facts_of(std::string_view type) {
  for (const FloatName& known : kFloats) {
    if (type == known.name) {
      return {'f', known.bits, known.lanes, known.precision, known.least, known.most, known.scalar};
    }
  }
  TypeFacts out;
  if (type == "pred") return {'p', 1, 1, 0, 0, 0, "pred"};
  out.kind = type[0];
  out.bits = static_cast<unsigned>(std::stoi(std::string(type.substr(1))));
  out.scalar = type;
  return out;
}

bool is_type(std::string_view name) {
  for (const FloatName& known : kFloats) {
    if (name == known.name) return true;
  }
  return !ptx::parse_type(name).is_none();
}

bool is_nan(Wide value) { return value != value; }
bool is_infinite(Wide value) { return magnitude(value) > power_of_two(16000); }

Exact sum(Wide a, Wide b) {
  const Wide total = a + b;
  if (is_nan(total) || is_infinite(total)) return {total, 0};
  const Wide b_part = total - a;
  const Wide a_part = total - b_part;
  return {total, sign_of((a - a_part) + (b - b_part))};
}

Exact product(Wide a, Wide b) { return {a * b, 0}; }

// A quotient of 53-bit numbers is never so close to a number of 54 bits that 113 bits cannot show
// its side.
Exact quotient(Wide a, Wide b) { return {a / b, 0}; }

Exact square_root(Wide a) {
  if (!(a > 0) || is_infinite(a)) return {a < 0 ? Wide(std::nan("")) : a, 0};
  Wide root = std::sqrt(static_cast<long double>(a));
  for (int i = 0; i < 3; ++i) root = (root + a / root) / 2;  // Newton: 64 bits to 113.
  // Squares of numbers with 54 bits are exact, which decides whether the root is one of them.
  const Wide scale = power_of_two(exponent_of(root) - 55);
  const Wide near = static_cast<Wide>(static_cast<long long>(root / scale + Wide(0.5))) * scale;
  if (near * near == a) return {near, 0};
  if (near == root) return {root, near * near < a ? 1 : -1};
  return {root, 0};
}

Exact fused(Wide a, Wide b, Wide c) { return sum(a * b, c); }

U64 low_bits(U64 value, unsigned bits) {
  return bits >= 64 ? value : value & ((U64{1} << bits) - 1);
}

Wide number(const TypeFacts& type, U64 bits) {
  const unsigned width = type.lane_bits();
  bits = low_bits(bits, width);
  if (type.kind == 's') return static_cast<std::int64_t>(bits << (64 - width)) >> (64 - width);
  if (!type.is_float()) return bits;
  if (type.scalar == "tf32") return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
  const int mantissa_bits = type.precision - 1;
  const U64 mantissa = low_bits(bits, static_cast<unsigned>(mantissa_bits));
  const auto exponent =
      static_cast<int>(low_bits(bits >> mantissa_bits, width - 1 - unsigned(mantissa_bits)));
  const Wide sign = (bits >> (width - 1) & 1) != 0 ? -1 : 1;
  const bool top = exponent == (1 << (width - 1 - unsigned(mantissa_bits))) - 1;
  if (type.scalar == "e4m3") {  // No infinity, one NaN.
    if (top && mantissa == 7) return std::nan("");
  } else if (top) {
    return mantissa == 0 ? sign * Wide(HUGE_VAL) : Wide(std::nan(""));
  }
  if (exponent == 0) return sign * Wide(mantissa) * power_of_two(type.least - mantissa_bits);
  return sign * Wide(mantissa + (U64{1} << mantissa_bits)) *
         power_of_two(exponent - 1 + type.least - mantissa_bits);
}

U64 not_a_number(const TypeFacts& type) {
  if (type.scalar == "f64") return 0x7fffffffffffffffull;
  return low_bits(0x7fffffff, type.lane_bits() - 1);
}

namespace {

// The bits of a number that the type can represent.
U64 encoded(const TypeFacts& type, Wide value, bool is_negative) {
  const unsigned width = type.lane_bits();
  const int mantissa_bits = type.scalar == "tf32" ? 23 : type.precision - 1;
  const U64 sign = U64{is_negative} << (width - 1);
  const Wide size = magnitude(value);
  if (size == 0) return sign;
  const int bias = 1 - type.least;
  if (is_infinite(size) || exponent_of(size) > type.most) {
    return sign | low_bits(~U64{0}, width - 1 - unsigned(mantissa_bits)) << mantissa_bits;
  }
  const int exponent = exponent_of(size);
  if (exponent < type.least) {
    return sign | static_cast<U64>(size / power_of_two(type.least - mantissa_bits));
  }
  const auto mantissa = static_cast<U64>(size / power_of_two(exponent - mantissa_bits));
  return sign | static_cast<U64>(exponent + bias) << mantissa_bits |
         low_bits(mantissa, static_cast<unsigned>(mantissa_bits));
}

}  // namespace

U64 rounded(const TypeFacts& type, Exact exact, Mode mode) {
  const Wide value = exact.value;
  if (is_nan(value)) return not_a_number(type);
  const bool is_negative = value < 0 || (value == 0 && std::signbit(static_cast<double>(value)));
  if (value == 0 || is_infinite(value)) return encoded(type, value, is_negative);
  const Wide size = magnitude(value);
  const int error = is_negative ? -exact.error : exact.error;
  int exponent = exponent_of(size);
  if (error < 0 && size == power_of_two(exponent)) --exponent;
  if (exponent < type.least) exponent = type.least;
  const Wide unit = power_of_two(exponent - type.precision + 1);
  auto units = static_cast<U64>(size / unit);
  const Wide rest = size / unit - Wide(units);
  const bool exact_result = rest == 0 && error == 0;
  if (rest == 0 && error < 0) --units;  // Just below `size`, so the fraction up to it is whole.
  const Wide fraction = rest == 0 && error < 0 ? Wide(1) : rest;
  bool up = false;
  if (mode == Mode::kNearest) {
    up =
        fraction > Wide(0.5) || (fraction == Wide(0.5) && (error > 0 || (error == 0 && units % 2)));
  } else if (mode != Mode::kZero) {
    up = !exact_result && (mode == Mode::kUp) != is_negative;
  }
  const Wide result = Wide(units + (up ? 1 : 0)) * unit;
  const bool overflow = exponent_of(result == 0 ? Wide(1) : result) > type.most;
  if (overflow &&
      (mode == Mode::kZero || (mode != Mode::kNearest && (mode == Mode::kUp) == is_negative))) {
    const Wide largest = (Wide(2) - power_of_two(1 - type.precision)) * power_of_two(type.most);
    return encoded(type, largest, is_negative);
  }
  return encoded(type, result, is_negative);
}

bool negative(const TypeFacts& type, U64 bits) { return (bits >> (type.lane_bits() - 1) & 1) != 0; }

U64 flushed(const TypeFacts& type, U64 bits) {
  const Wide value = number(type, bits);
  if (is_nan(value) || magnitude(value) >= power_of_two(type.least)) return bits;
  return U64{negative(type, bits)} << (type.lane_bits() - 1);
}

Name::Name(const std::string& name) : full(name) {
  std::string part;
  for (const char c : name + ".") {
    if (c != '.') {
      part += c;
      continue;
    }
    if (opcode.empty()) {
      opcode = part;
    } else {
      parts.push_back(part);
      if (is_type(part)) types.push_back(part);
    }
    part.clear();
  }
}

bool Name::has(std::string_view part) const {
  for (const std::string& known : parts) {
    if (known == part) return true;
  }
  return false;
}

Mode Name::mode() const {
  if (has("rz")) return Mode::kZero;
  if (has("rm")) return Mode::kDown;
  return has("rp") ? Mode::kUp : Mode::kNearest;
}

std::vector<std::string> variants_of(std::string_view opcode) {
  std::vector<std::string> out;
  for (const std::string& name : accepted_variants()) {
    if (std::string_view(name).substr(0, name.find('.')) == opcode) out.push_back(name);
  }
  return out;
}

const std::vector<Inputs>& all_inputs() {
  static const auto* inputs = [] {
    const U64 edges[] = {
        0,
        1,
        2,
        31,
        32,
        33,
        0xffffffffffffffff,
        0x8000000080008000,
        0x7fffffff7fff7fff,
        0x3ff0000000000000,
        0xbff8000000000000,
        0x7ff0000000000000,
        0xfff0000000000000,
        0x7ff8000000000001,
        0x0000000000000001,
        0x000fffffffffffff,
        0x8000000000000000,
        0x7fefffffffffffff,
        0x3f8000003f800000,
        0xbfc00000bf000000,
        0x7f8000007f800000,
        0xff800000ff800000,
        0x7fc000007f800001,
        0x0000000100000001,
        0x807fffff007fffff,
        0x7f7fffffff7fffff,
        0x4f0000004effffff,
        0x3c003e00bc00c000,
        0x7c00fc007e000001,
        0x7bff040003ff8001,
        0x3f80bf807f80ff80,
        0x3c013c013c013c01,
        0x5f0000005f800000,
        0x41dfffffffc00000,
        0x43e0000000000000,
        0x3fe0000000000000,
        0x0000000000008000,
    };
    auto* out = new std::vector<Inputs>;
    std::mt19937_64 random(20240817);
    const auto edge = [&] { return edges[random() % std::size(edges)]; };
    for (U64 a : edges) {
      for (int i = 0; i < 3; ++i) out->push_back({a, edge(), edge()});
    }
    for (int i = 0; i < 100; ++i) out->push_back({random(), random(), random()});
    // Floats of medium size, so that sums and products do not vanish.
    const auto middling = [&]() -> U64 {
      const double value = std::ldexp(static_cast<double>(random() % 4097) - 2048,
                                      static_cast<int>(random() % 24) - 16);
      const auto narrow = static_cast<float>(value);
      const auto half = static_cast<_Float16>(narrow);
      switch (random() % 3) {
        case 0:
          return std::bit_cast<U64>(value);
        case 1:
          return std::bit_cast<std::uint32_t>(narrow) * 0x100000001ull;
        default:
          return std::bit_cast<std::uint16_t>(half) * 0x1000100010001ull;
      }
    };
    for (int i = 0; i < 60; ++i) out->push_back({middling(), middling(), middling()});
    for (U64 i = 0; i < 40; ++i) out->push_back({random(), i, random() % 40});
    return out;
  }();
  return *inputs;
}

}  // namespace gpurun::emulated::test
