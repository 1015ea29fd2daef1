// Floating-point instructions and conversions: translated with rounding (also the directed modes),
// flushing, saturation, signed zeros and NaN.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernel_harness.h"

namespace gpurun::emulated {
namespace {

using U64 = std::uint64_t;
using Cases = std::vector<InstructionCase>;
using Exact = __float128;  // Sums and products of the inputs below are exact in it.

U64 bits(float v) { return std::bit_cast<std::uint32_t>(v); }
U64 bits(double v) { return std::bit_cast<U64>(v); }
template <class T>
T value(U64 v) {
  if constexpr (sizeof(T) == 4) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(v));
  } else {
    return std::bit_cast<double>(v);
  }
}

enum class Mode { kNearest, kZero, kDown, kUp };

// Rounds an exact value to T in that mode, without a change of the host's rounding mode.
template <class T>
T rounded(Exact exact, Mode mode) {
  const T nearest = static_cast<T>(exact);
  const T infinity = std::numeric_limits<T>::infinity();
  if (mode == Mode::kZero) mode = exact < 0 ? Mode::kUp : Mode::kDown;
  if (mode == Mode::kDown && static_cast<Exact>(nearest) > exact) {
    return std::nextafter(nearest, -infinity);
  }
  if (mode == Mode::kUp && static_cast<Exact>(nearest) < exact) {
    return std::nextafter(nearest, infinity);
  }
  return nearest;
}

// For arithmetic on nonzero numbers: x - x is -0 when rounding down.
template <class T>
T arithmetic(Exact exact, Mode mode) {
  return exact == 0 && mode == Mode::kDown ? T(-0.0) : rounded<T>(exact, mode);
}

constexpr std::pair<const char*, Mode> kModes[] = {
    {"rn", Mode::kNearest}, {"rz", Mode::kZero}, {"rm", Mode::kDown}, {"rp", Mode::kUp}};

template <class T>
std::vector<Inputs> number_inputs() {
  const T numbers[] = {T(1),    T(-1.5),  T(0.1),        T(3),       T(-7e5),
                       T(1e-6), T(1) / 3, T(1e6) + T(1), T(-0.3125), T(1234.5678)};
  std::vector<Inputs> inputs;
  for (T a : numbers) {
    for (T b : numbers) inputs.push_back({bits(a), bits(b), bits(numbers[inputs.size() % 10])});
  }
  return inputs;
}

template <class T>
void add_rounded(Cases& cases, const char* mode_name, Mode mode) {
  const unsigned width = sizeof(T) * 8;
  const std::string suffix = std::string(".") + mode_name + ".f" + std::to_string(width);
  const auto binary = [&](const std::string& name, auto f) {
    cases.push_back({name + suffix, width, {width, width}, "", [=](U64 a, U64 b, U64) {
                       return bits(arithmetic<T>(f(Exact(value<T>(a)), Exact(value<T>(b))), mode));
                     }});
  };
  binary("add", [](Exact a, Exact b) { return a + b; });
  binary("sub", [](Exact a, Exact b) { return a - b; });
  binary("mul", [](Exact a, Exact b) { return a * b; });
  // 113 bits decide every quotient of 24 or 53 bits.
  binary("div", [](Exact a, Exact b) { return a / b; });
  cases.push_back({"rcp" + suffix, width, {width}, "", [=](U64 a, U64, U64) {
                     return bits(arithmetic<T>(Exact(1) / Exact(value<T>(a)), mode));
                   }});
  if constexpr (sizeof(T) == 4) {
    cases.push_back({"fma" + suffix, width, {width, width, width}, "", [=](U64 a, U64 b, U64 c) {
                       return bits(arithmetic<T>(
                           Exact(value<T>(a)) * Exact(value<T>(b)) + Exact(value<T>(c)), mode));
                     }});
  }
}

template <class T>
void check_rounded() {
  Cases cases;
  for (const auto& [name, mode] : kModes) add_rounded<T>(cases, name, mode);
  check_instructions(cases, number_inputs<T>());
}

TEST(FloatInstructions, SingleArithmeticFollowsRoundingMode) { check_rounded<float>(); }
TEST(FloatInstructions, DoubleArithmeticFollowsRoundingMode) { check_rounded<double>(); }

TEST(FloatInstructions, HandlesSubnormalsSaturationNanAndSigns) {
  const float tiny = 1e-40f;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<Inputs> inputs{{bits(tiny), bits(tiny), 0},   {bits(-tiny), bits(0.0f), 0},
                                   {bits(0.75f), bits(0.75f), 0}, {bits(-0.0f), bits(0.0f), 0},
                                   {bits(-2.0f), bits(0.5f), 0},  {bits(nan), bits(2.0f), 0},
                                   {bits(2.0f), bits(nan), 0}};
  const auto flushed = [](float v) {
    return std::fabs(v) < 0x1p-126f ? std::copysign(0.0f, v) : v;
  };
  const auto f = [](U64 v) { return value<float>(v); };
  Cases cases;
  cases.push_back({"add.ftz.sat.f32", 32, {32, 32}, "", [=](U64 a, U64 b, U64) {
                     const float sum = flushed(flushed(f(a)) + flushed(f(b)));
                     return bits(sum > 0 ? std::min(sum, 1.0f) : 0.0f);  // NaN: +0.
                   }});
  const auto smaller = [=](U64 a, U64 b) {
    if (std::isnan(f(a))) return f(b);
    if (std::isnan(f(b))) return f(a);
    if (f(a) == f(b)) return std::signbit(f(a)) ? f(a) : f(b);
    return f(a) < f(b) ? f(a) : f(b);
  };
  cases.push_back(
      {"min.f32", 32, {32, 32}, "", [=](U64 a, U64 b, U64) { return bits(smaller(a, b)); }});
  cases.push_back(
      {"setp.lt.f32", 1, {32, 32}, "", [=](U64 a, U64 b, U64) { return U64{f(a) < f(b)}; }});
  cases.push_back(
      {"setp.ltu.f32", 1, {32, 32}, "", [=](U64 a, U64 b, U64) { return U64{!(f(a) >= f(b))}; }});
  cases.push_back({"setp.nan.f32", 1, {32, 32}, "", [=](U64 a, U64 b, U64) {
                     return U64{std::isnan(f(a)) || std::isnan(f(b))};
                   }});
  cases.push_back({"testp.subnormal.f32", 1, {32}, "", [=](U64 a, U64, U64) {
                     return U64{std::fpclassify(f(a)) == FP_SUBNORMAL};
                   }});
  cases.push_back({"copysign.f32", 32, {32, 32}, "", [=](U64 a, U64 b, U64) {
                     return (a & 0x80000000u) | (b & 0x7fffffffu);
                   }});
  check_instructions(cases, inputs);
}

TEST(FloatInstructions, ConversionsToIntegersClampAndMapNanToZero) {
  Cases cases;
  const auto add = [&](const char* mode, auto round) {
    const auto clamped = [=](U64 a, double least, double most) {
      const double v = round(static_cast<double>(value<float>(a)));
      return std::isnan(v) ? 0.0 : std::min(std::max(v, least), most);
    };
    cases.push_back({std::string("cvt.") + mode + ".s32.f32", 32, {32}, "", [=](U64 a, U64, U64) {
                       return U64(std::int64_t(clamped(a, -2147483648.0, 2147483647.0)));
                     }});
    cases.push_back({std::string("cvt.") + mode + ".u16.f32", 16, {32}, "", [=](U64 a, U64, U64) {
                       return U64(clamped(a, 0, 65535));
                     }});
  };
  add("rni", [](double v) { return std::nearbyint(v); });
  add("rzi", [](double v) { return std::trunc(v); });
  add("rmi", [](double v) { return std::floor(v); });
  add("rpi", [](double v) { return std::ceil(v); });
  std::vector<Inputs> inputs;
  for (float v : {0.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 1e10f, -1e10f, 65535.5f, 123.456f}) {
    inputs.push_back({bits(v), 0, 0});
  }
  inputs.push_back({bits(std::numeric_limits<float>::quiet_NaN()), 0, 0});
  check_instructions(cases, inputs);
}

TEST(FloatInstructions, ConversionsToFloatsFollowRoundingMode) {
  Cases cases;
  for (const auto& [name, mode_value] : kModes) {
    const Mode mode = mode_value;
    const std::string prefix = std::string("cvt.") + name;
    cases.push_back({prefix + ".f32.f64", 32, {64}, "", [=](U64 a, U64, U64) {
                       return bits(rounded<float>(Exact(value<double>(a)), mode));
                     }});
    cases.push_back({prefix + ".f32.s32", 32, {32}, "", [=](U64 a, U64, U64) {
                       return bits(rounded<float>(Exact(std::int32_t(a)), mode));
                     }});
    cases.push_back({prefix + ".f32.u64", 32, {64}, "", [=](U64 a, U64, U64) {
                       return bits(rounded<float>(Exact(a), mode));
                     }});
    cases.push_back({prefix + ".f64.s64", 64, {64}, "", [=](U64 a, U64, U64) {
                       return bits(rounded<double>(Exact(std::int64_t(a)), mode));
                     }});
  }
  cases.push_back({"cvt.f64.f32", 64, {32}, "", [](U64 a, U64, U64) {
                     return bits(static_cast<double>(value<float>(a)));
                   }});
  std::vector<Inputs> inputs = number_inputs<double>();
  inputs.push_back({0x8000000000000001ull, 0, 0});
  inputs.push_back({0x0123456789abcdefull, 0, 0});
  check_instructions(cases, inputs);
}

TEST(FloatInstructions, HalfPrecisionRoundsOnce) {
  const auto half = [](U64 v) { return std::bit_cast<_Float16>(static_cast<std::uint16_t>(v)); };
  const auto half_bits = [](_Float16 v) { return U64{std::bit_cast<std::uint16_t>(v)}; };
  Cases cases;
  cases.push_back({"add.f16", 16, {16, 16}, "", [=](U64 a, U64 b, U64) {
                     return half_bits(static_cast<_Float16>(double(half(a)) + double(half(b))));
                   }});
  cases.push_back({"mul.f16", 16, {16, 16}, "", [=](U64 a, U64 b, U64) {
                     return half_bits(static_cast<_Float16>(double(half(a)) * double(half(b))));
                   }});
  cases.push_back({"fma.rn.f16", 16, {16, 16, 16}, "", [=](U64 a, U64 b, U64 c) {
                     const Exact all = Exact(double(half(a)) * double(half(b))) + double(half(c));
                     return half_bits(static_cast<_Float16>(all));
                   }});
  cases.push_back({"cvt.f32.f16", 32, {16}, "", [=](U64 a, U64, U64) {
                     return bits(static_cast<float>(half(a)));
                   }});
  cases.push_back({"cvt.rn.bf16.f32", 16, {32}, "", [=](U64 a, U64, U64) {
                     const U64 low = a & 0xffffffffu;
                     return (low + 0x7fff + (low >> 16 & 1)) >> 16;
                   }});
  std::vector<Inputs> inputs;
  for (U64 a : {0x3c00ull, 0x3555ull, 0xbc01ull, 0x0001ull, 0x7bffull, 0x1400ull, 0x4248ull}) {
    for (U64 b : {0x3c01ull, 0x2e66ull, 0x8400ull, 0x5640ull}) {
      inputs.push_back({a | b << 16, b, a ^ 0x8000});
    }
  }
  check_instructions(cases, inputs);
}

}  // namespace
}  // namespace gpurun::emulated
