// Floating-point arithmetic: every accepted variant in all formats, with its rounding, flushing and
// saturation.
#include <gtest/gtest.h>

#include <cmath>

#include "reference.h"

namespace gpurun::emulated {
namespace {

using namespace test;

bool is_float_name(const Name& name) {
  return !name.types.empty() && facts_of(name.types.back()).is_float();
}

// A sum of exactly zero is -0 when rounding down, unless both operands were +0.
U64 zero_sum(const TypeFacts& type, Mode mode, bool x_negative, bool y_negative) {
  const bool negative = mode == Mode::kDown ? x_negative || y_negative : x_negative && y_negative;
  return U64{negative} << (type.lane_bits() - 1);
}

struct Scalars {
  U64 a, b, c;
};

U64 arithmetic(const Name& name, const TypeFacts& type, const Scalars& in) {
  const Mode mode = name.mode();
  const Wide x = number(type, in.a);
  Wide y = number(type, in.b);
  const Wide z = number(type, in.c);
  const bool x_negative = negative(type, in.a);
  bool y_negative = negative(type, in.b);
  if (name.opcode == "add" || name.opcode == "sub") {
    if (name.opcode == "sub") y = -y, y_negative = !y_negative;
    const Exact exact = sum(x, y);
    if (exact.value == 0) return zero_sum(type, mode, x_negative, y_negative);
    return rounded(type, exact, mode);
  }
  if (name.opcode == "mul") return rounded(type, product(x, y), mode);
  if (name.opcode == "div") return rounded(type, quotient(x, y), mode);
  if (name.opcode == "rcp") return rounded(type, quotient(1, x), mode);
  if (name.opcode == "sqrt") return rounded(type, square_root(x), mode);
  const Exact exact = fused(x, y, z);  // fma, mad
  if (exact.value == 0) {
    return zero_sum(type, mode, x_negative != y_negative, negative(type, in.c));
  }
  return rounded(type, exact, mode);
}

U64 smaller_or_larger(const Name& name, const TypeFacts& type, U64 a, U64 b) {
  const unsigned top = type.lane_bits() - 1;
  U64 sign = 0;
  if (name.has("xorsign")) {
    sign = ((a ^ b) >> top & 1) << top;
    a = low_bits(a, top);
    b = low_bits(b, top);
  }
  const Wide x = number(type, a);
  const Wide y = number(type, b);
  U64 result = 0;
  if (is_nan(x) || is_nan(y)) {
    if (name.has("NaN") || (is_nan(x) && is_nan(y))) return not_a_number(type);
    result = is_nan(x) ? b : a;
  } else if (x == y) {
    result = negative(type, a) == (name.opcode == "min") ? a : b;
  } else {
    result = (x < y) == (name.opcode == "min") ? a : b;
  }
  return name.has("xorsign") ? low_bits(result, top) | sign : result;
}

U64 one_scalar(const Name& name, const TypeFacts& type, Scalars in) {
  const unsigned bits = type.lane_bits();
  for (U64* value : {&in.a, &in.b, &in.c}) {
    *value = low_bits(*value, bits);
    if (name.has("ftz")) *value = flushed(type, *value);
  }
  U64 result = 0;
  if (name.opcode == "neg") {
    result = in.a ^ U64 { 1 } << (bits - 1);
  } else if (name.opcode == "abs") {
    result = low_bits(in.a, bits - 1);
  } else if (name.opcode == "min" || name.opcode == "max") {
    result = smaller_or_larger(name, type, in.a, in.b);
  } else {
    result = arithmetic(name, type, in);
  }
  const Wide value = number(type, result);
  if (name.has("sat")) {
    if (is_nan(value) || value <= 0) return 0;
    if (value > 1) return rounded(type, {1, 0}, Mode::kNearest);
  }
  if (name.has("relu") && value <= 0) return 0;
  return name.has("ftz") ? flushed(type, result) : result;
}

std::function<U64(U64, U64, U64)> all_lanes(const Name& name) {
  const TypeFacts type = facts_of(name.types.back());
  return [=](U64 a, U64 b, U64 c) {
    const unsigned bits = type.lane_bits();
    U64 out = one_scalar(name, type, {a, b, c});
    if (type.lanes == 2) {
      out = low_bits(out, bits) |
            low_bits(one_scalar(name, type, {a >> bits, b >> bits, c >> bits}), bits) << bits;
    }
    return out;
  };
}

unsigned operand_count(const std::string& opcode) {
  if (opcode == "fma" || opcode == "mad") return 3;
  return opcode == "rcp" || opcode == "sqrt" || opcode == "neg" || opcode == "abs" ? 1 : 2;
}

TEST(InstructionVariants, FloatArithmeticMatchesReference) {
  check_variants(
      {"add", "sub", "mul", "fma", "mad", "div", "rcp", "sqrt", "neg", "abs", "min", "max"},
      [](const Name& name) {
        if (!is_float_name(name) || name.has("approx") || name.has("full")) {
          return InstructionCase{};
        }
        const unsigned bits = facts_of(name.types.back()).bits;
        return InstructionCase{"",
                               bits,
                               std::vector<unsigned>(operand_count(name.opcode), bits),
                               "",
                               all_lanes(name),
                               name.types.back()};
      });
}

// The allowed errors of approximate functions, relative to the result (PTX ISA, with a small
// margin). Near zero they are relative to `floor`.
double approximate(const std::string& opcode, double a, double b) {
  if (opcode == "div") return a / b;
  if (opcode == "rcp") return 1 / a;
  if (opcode == "sqrt") return std::sqrt(a);
  if (opcode == "rsqrt") return 1 / std::sqrt(a);
  if (opcode == "ex2") return std::exp2(a);
  if (opcode == "lg2") return std::log2(a);
  if (opcode == "sin") return std::sin(a);
  return opcode == "cos" ? std::cos(a) : std::tanh(a);
}

U64 approximate_lane(const Name& name, const TypeFacts& type, U64 a, U64 b) {
  a = low_bits(a, type.lane_bits());
  b = low_bits(b, type.lane_bits());
  const bool flush = name.has("ftz") && (type.scalar != "bf16");
  if (flush) {
    a = flushed(type, a);
    b = flushed(type, b);
  }
  const double value = approximate(name.opcode, static_cast<double>(number(type, a)),
                                   static_cast<double>(number(type, b)));
  const U64 result = rounded(type, {value, 0}, Mode::kNearest);
  return flush ? flushed(type, result) : result;
}

TEST(InstructionVariants, ApproximateFunctionsStayWithinTolerance) {
  check_variants(
      {"div", "rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh"}, [](const Name& name) {
        if (!is_float_name(name) || (!name.has("approx") && !name.has("full"))) {
          return InstructionCase{};
        }
        const TypeFacts type = facts_of(name.types.back());
        InstructionCase one{"",
                            type.bits,
                            std::vector<unsigned>(name.opcode == "div" ? 2 : 1, type.bits),
                            "",
                            [=](U64 a, U64 b, U64) {
                              const unsigned bits = type.lane_bits();
                              U64 out = low_bits(approximate_lane(name, type, a, b), bits);
                              if (type.lanes == 2) {
                                out |= approximate_lane(name, type, a >> bits, b >> bits) << bits;
                              }
                              return out;
                            },
                            name.types.back()};
        one.tolerance = type.scalar == "f16"    ? 0x1p-10
                        : type.scalar == "bf16" ? 0x1p-7
                        : type.scalar == "f64"  ? 0x1p-19
                                                : 0x1p-20;
        one.floor = name.opcode == "sin" || name.opcode == "cos" || name.opcode == "lg2" ? 1 : 0;
        return one;
      });
}

TEST(InstructionVariants, CopysignAndTestpMatchReference) {
  check_variants({"copysign", "testp"}, [](const Name& name) {
    const TypeFacts type = facts_of(name.types.back());
    const unsigned bits = type.bits;
    if (name.opcode == "copysign") {  // The sign of a on b.
      return InstructionCase{"", bits, {bits, bits}, "", [=](U64 a, U64 b, U64) {
                               return (a >> (bits - 1) & 1) << (bits - 1) | low_bits(b, bits - 1);
                             }};
    }
    return InstructionCase{"", 1, {bits}, "", [=](U64 a, U64, U64) {
                             a = low_bits(a, bits);
                             const Wide value = number(type, a);
                             const bool nan = is_nan(value);
                             const bool infinite = is_infinite(value);
                             const bool tiny = value != 0 && flushed(type, a) != a;
                             if (name.has("finite")) return U64{!nan && !infinite};
                             if (name.has("infinite")) return U64{!nan && infinite};
                             if (name.has("number")) return U64{!nan};
                             if (name.has("notanumber")) return U64{nan};
                             if (name.has("subnormal")) return U64{!nan && tiny};
                             return U64{!nan && !infinite && !tiny && value != 0};
                           }};
  });
}

}  // namespace
}  // namespace gpurun::emulated
