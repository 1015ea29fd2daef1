// Conversions: every accepted variant of cvt.
#include <gtest/gtest.h>

#include "reference.h"

namespace gpurun::emulated {
namespace {

using namespace test;

struct Conversion {
  explicit Conversion(const Name& name)
      : to(facts_of(name.type(0))), from(facts_of(name.type(1))), mode(name.mode()) {
    flush = name.has("ftz");
    saturate = name.has("sat");
    finite = name.has("satfinite");
    relu = name.has("relu");
    away = name.has("rna");
    if (name.has("rni")) integral = true;
    if (name.has("rzi")) integral = true, mode = Mode::kZero;
    if (name.has("rmi")) integral = true, mode = Mode::kDown;
    if (name.has("rpi")) integral = true, mode = Mode::kUp;
  }
  TypeFacts to, from;
  Mode mode;
  bool flush = false, saturate = false, finite = false, relu = false, integral = false;
  bool away = false;
};

// Rounds to an integer in the given direction. Numbers beyond 2^112 are integers already.
Wide integral(Wide value, Mode mode) {
  const Wide limit = Wide(U64{1} << 63) * 4;
  if (is_nan(value) || value > limit || value < -limit) return value;
  const auto whole = static_cast<__int128>(value);
  const Wide rest = value - Wide(whole);
  if (rest == 0) return value;  // Keeps -0.
  __int128 result = whole;
  const Wide size = rest < 0 ? -rest : rest;
  if (mode == Mode::kUp && rest > 0) ++result;
  if (mode == Mode::kDown && rest < 0) --result;
  if (mode == Mode::kNearest && (size > Wide(0.5) || (size == Wide(0.5) && whole % 2 != 0))) {
    result += rest < 0 ? -1 : 1;
  }
  return result == 0 && value < 0 ? Wide(-0.0) : Wide(result);
}

U64 to_integer(const Conversion& how, Wide value) {
  if (is_nan(value)) return 0;
  const unsigned bits = how.to.bits;
  const bool is_signed = how.to.kind == 's';
  const Wide one = 1;
  const Wide most = Wide((one * static_cast<Wide>(U64{1} << (bits - 1))) * (is_signed ? 1 : 2)) - 1;
  const Wide least = is_signed ? -most - 1 : Wide(0);
  if (how.from.is_float() || how.saturate) {  // From floats, with or without .sat.
    value = value < least ? least : value > most ? most : value;
  }
  const auto whole = static_cast<__int128>(value);
  // Narrow results are extended in their register by their own sign.
  const U64 low = low_bits(static_cast<U64>(whole), bits);
  return is_signed ? static_cast<U64>(static_cast<std::int64_t>(low << (64 - bits)) >> (64 - bits))
                   : low;
}

U64 to_float(const Conversion& how, Wide value) {
  const TypeFacts& to = how.to;
  if (how.relu && value < 0) value = 0;
  if (how.saturate) value = is_nan(value) || value < 0 ? Wide(0) : value > 1 ? Wide(1) : value;
  if (how.saturate && value == 0) value = 0.0;
  U64 bits = rounded(to, {value, 0}, how.mode);
  if (how.relu && value == 0) bits = 0;
  if (how.finite && to.scalar == "tf32" && (bits & 0x7fffffff) == 0x7f800000) bits -= 0x2000;
  if (how.flush && to.scalar == "f32") bits = flushed(to, bits);
  return bits;
}

// Ties away from zero, to 10 bits of mantissa.
U64 to_tf32_away(Wide value, bool finite) {
  const TypeFacts f32 = facts_of("f32");
  const U64 bits = rounded(f32, {value, 0}, Mode::kNearest);
  if (is_nan(value) || is_infinite(value)) return finite && !is_nan(value) ? bits - 0x2000 : bits;
  const U64 up = (bits + 0x1000) & 0xffffe000u;
  return finite && (up & 0x7fffffff) >= 0x7f800000 ? (up & 0x80000000u) | 0x7f7fe000 : up;
}

// With .satfinite the largest number replaces everything larger.
U64 to_small_float(const Conversion& how, Wide value) {
  const TypeFacts& to = how.to;
  const unsigned width = to.lane_bits();
  if (is_nan(value)) return low_bits(0x7fff, width - 1);
  if (how.relu && !(value > 0)) return 0;
  const U64 largest = to.scalar == "e4m3" ? 0x7e : 0x7b;
  const Wide most = number(to, largest);
  const Wide size = value < 0 ? -value : value;
  const U64 sign = U64{value < 0} << (width - 1);
  if (size >= most) return sign | largest;
  const U64 bits = rounded(to, {value, 0}, how.mode);
  return low_bits(bits, width - 1) > largest ? sign | largest : bits;
}

U64 converted(const Conversion& how, U64 source) {
  source = low_bits(source, how.from.lane_bits());
  if (how.flush && how.from.scalar == "f32") source = flushed(how.from, source);
  Wide value = number(how.from, source);
  if (how.integral) value = integral(value, how.mode);
  if (!how.to.is_float()) return to_integer(how, value);
  if (how.to.scalar == "tf32" && how.away) return to_tf32_away(value, how.finite);
  if (how.to.lane_bits() == 8) return to_small_float(how, value);
  return to_float(how, value);
}

// cvt.pack: clamped integers side by side, above the remaining bits of a third operand.
InstructionCase packed_integers(const Name& name) {
  const TypeFacts to = facts_of(name.type(0));
  const bool third = name.has("b32");
  const U64 mask = (U64{1} << to.bits) - 1;
  const std::int64_t most = static_cast<std::int64_t>(to.kind == 's' ? mask / 2 : mask);
  const std::int64_t least = to.kind == 's' ? -most - 1 : 0;
  const auto clamped = [=](U64 x) {
    const std::int64_t value = static_cast<std::int32_t>(static_cast<std::uint32_t>(x));
    return static_cast<U64>(value < least ? least : value > most ? most : value) & mask;
  };
  const std::vector<unsigned> sources =
      third ? std::vector<unsigned>{32, 32, 32} : std::vector<unsigned>{32, 32};
  return {"", 32, sources, "", [=](U64 a, U64 b, U64 c) {
            return (third ? c << (2 * to.bits) : 0) | clamped(a) << to.bits | clamped(b);
          }};
}

TEST(InstructionVariants, CvtMatchesReference) {
  check_variants({"cvt"}, [](const Name& name) {
    if (name.has("pack")) return packed_integers(name);
    const Conversion how(name);
    const unsigned result = std::max(16u, how.to.bits);
    const unsigned source = std::max(16u, how.from.bits);
    const unsigned lane = how.to.lane_bits();
    const std::string type =
        how.to.is_float() && lane >= 16 && how.to.scalar != "tf32" ? name.type() : std::string();
    if (how.to.lanes == 2 && how.from.lanes == 1) {  // d = {b, a}
      return InstructionCase{
          "",
          result,
          {source, source},
          "",
          [=](U64 a, U64 b, U64) { return converted(how, b) | converted(how, a) << lane; },
          type};
    }
    if (how.to.lanes == 2) {
      return InstructionCase{"",
                             result,
                             {source},
                             "",
                             [=](U64 a, U64, U64) {
                               return converted(how, a) | converted(how, a >> how.from.lane_bits())
                                                              << lane;
                             },
                             type};
    }
    return InstructionCase{
        "", result, {source}, "", [=](U64 a, U64, U64) { return converted(how, a); }, type};
  });
}

}  // namespace
}  // namespace gpurun::emulated
