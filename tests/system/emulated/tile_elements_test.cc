// Tile IR's elementwise operations, compared with the host: integers of each width at the numbers
// where they overflow, floating point with NaN and infinities, and conversions.
#include <cmath>

#include "emulated/tile/operations.h"
#include "tests/system/emulated/tile_sheet.h"

namespace gpurun::test {
namespace {

using namespace emulated::tile;

using In = const std::vector<std::uint64_t>&;

std::uint64_t mask_of(unsigned bits) {
  return bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
}
std::int64_t sign_of(std::uint64_t value, unsigned bits) {
  return static_cast<std::int64_t>(value << (64 - bits)) >> (64 - bits);
}

// Numbers at the edges and in between, 8 x 8 pairs of them.
void edges(unsigned bits, bool divisors, TileSheet::Values* a, TileSheet::Values* b) {
  const std::uint64_t top = std::uint64_t{1} << (bits - 1), all = mask_of(bits);
  const std::uint64_t some[] = {0, 1, 7, top - 1, top, top + 1, all - 6, all};
  for (const std::uint64_t left : some) {
    for (std::uint64_t right : some) {
      if (divisors && right == 0) right = 3;
      // Avoids quotients that the type cannot hold, for which CUDA promises nothing.
      if (divisors && left == top && right == all) right = 5;
      a->push_back(left);
      b->push_back(right);
    }
  }
}

constexpr const char* kComparisonNames[] = {"eq", "ne", "lt", "le", "gt", "ge"};

template <typename T>
bool holds(unsigned predicate, T a, T b) {
  switch (predicate) {
    case 0:
      return a == b;
    case 1:
      return a != b;
    case 2:
      return a < b;
    case 3:
      return a <= b;
    case 4:
      return a > b;
    default:
      return a >= b;
  }
}

class TileIntegers : public TileSheets, public testing::WithParamInterface<TileTag> {
 protected:
  unsigned bits() const { return 8 * bytes_of(GetParam()); }
};

TEST_P(TileIntegers, ArithmeticMatchesHost) {
  const TileTag tag = GetParam();
  const unsigned width = bits();
  TileSheet sheet;
  TileSheet::Values left, right;
  edges(width, false, &left, &right);
  const unsigned a = sheet.input(tag, left), b = sheet.input(tag, right);
  sheet.row("add", kAddI, tag, {0}, {a, b}, [](In x) { return x[0] + x[1]; });
  sheet.row("sub", kSubI, tag, {0}, {a, b}, [](In x) { return x[0] - x[1]; });
  sheet.row("mul", kMulI, tag, {0}, {a, b}, [](In x) { return x[0] * x[1]; });
  sheet.row("and", kAndI, tag, {}, {a, b}, [](In x) { return x[0] & x[1]; });
  sheet.row("or", kOrI, tag, {}, {a, b}, [](In x) { return x[0] | x[1]; });
  sheet.row("xor", kXOrI, tag, {}, {a, b}, [](In x) { return x[0] ^ x[1]; });
  sheet.row("neg", kNegI, tag, {}, {a}, [](In x) { return -x[0]; });
  sheet.row("abs", kAbsI, tag, {}, {a},
            [width](In x) { return sign_of(x[0], width) < 0 ? -x[0] : x[0]; });
  sheet.row("mulhi", kMulhiI, tag, {}, {a, b}, [width](In x) {
    return static_cast<std::uint64_t>(static_cast<unsigned __int128>(x[0]) * x[1] >> width);
  });
  for (const std::uint64_t with_sign : {0, 1}) {
    const auto order = [=](In x) {
      return with_sign != 0 ? sign_of(x[0], width) < sign_of(x[1], width) : x[0] < x[1];
    };
    sheet.row("min", kMinI, tag, {with_sign}, {a, b}, [=](In x) { return x[order(x) ? 0 : 1]; });
    sheet.row("max", kMaxI, tag, {with_sign}, {a, b}, [=](In x) { return x[order(x) ? 1 : 0]; });
    for (unsigned predicate = 0; predicate < 6; ++predicate) {
      sheet.row(kComparisonNames[predicate], kCmpI, kI1, {predicate, with_sign}, {a, b},
                [=](In x) -> std::uint64_t {
                  return with_sign != 0
                             ? holds(predicate, sign_of(x[0], width), sign_of(x[1], width))
                             : holds(predicate, x[0], x[1]);
                });
    }
  }
  check(sheet);
}

TEST_P(TileIntegers, DivisionAndShiftsMatchHost) {
  const TileTag tag = GetParam();
  const unsigned width = bits();
  TileSheet sheet;
  TileSheet::Values left, right, counts;
  edges(width, true, &left, &right);
  for (unsigned i = 0; i < kSheetElements; ++i) counts.push_back(i % width);
  const unsigned a = sheet.input(tag, left), b = sheet.input(tag, right);
  const unsigned count = sheet.input(tag, counts);
  for (const std::uint64_t with_sign : {0, 1}) {
    for (const std::uint64_t rounding : {1, 2, 3}) {  // To zero, down, up.
      sheet.row("div", kDivI, tag, {with_sign, rounding}, {a, b}, [=](In x) -> std::uint64_t {
        if (with_sign == 0) return x[0] / x[1] + (rounding == 3 && x[0] % x[1] != 0 ? 1 : 0);
        const std::int64_t p = sign_of(x[0], width), q = sign_of(x[1], width);
        const bool negative = (p < 0) != (q < 0), rest = p % q != 0;
        return static_cast<std::uint64_t>(p / q - (rounding == 2 && rest && negative ? 1 : 0) +
                                          (rounding == 3 && rest && !negative ? 1 : 0));
      });
    }
    sheet.row("rem", kRemI, tag, {with_sign}, {a, b}, [=](In x) {
      return with_sign == 0
                 ? x[0] % x[1]
                 : static_cast<std::uint64_t>(sign_of(x[0], width) % sign_of(x[1], width));
    });
    sheet.row("shr", kShRI, tag, {with_sign}, {a, count}, [=](In x) {
      return with_sign == 0 ? x[0] >> x[1]
                            : static_cast<std::uint64_t>(sign_of(x[0], width) >> x[1]);
    });
  }
  sheet.row("shl", kShLI, tag, {0}, {a, count}, [](In x) { return x[0] << x[1]; });
  check(sheet);
}

TEST_P(TileIntegers, ConversionsMatchHost) {
  const TileTag tag = GetParam();
  const unsigned width = bits();
  TileSheet sheet;
  TileSheet::Values left, right, truths;
  edges(width, false, &left, &right);
  for (unsigned i = 0; i < kSheetElements; ++i) truths.push_back(i % 3 == 0 ? 1 : 0);
  const unsigned a = sheet.input(tag, left), b = sheet.input(tag, right);
  const unsigned truth = sheet.input(kI1, truths);
  sheet.row("select", kSelect, tag, {}, {truth, a, b},
            [](In x) { return x[0] != 0 ? x[1] : x[2]; });
  for (const TileTag other : {kI8, kI16, kI32, kI64}) {
    if (other < tag) sheet.row("trunc", kTruncI, other, {0}, {a}, [](In x) { return x[0]; });
    if (other <= tag) continue;
    sheet.row("zext", kExtI, other, {0}, {a}, [](In x) { return x[0]; });
    sheet.row("sext", kExtI, other, {1}, {a},
              [=](In x) { return static_cast<std::uint64_t>(sign_of(x[0], width)); });
  }
  sheet.row("truth", kExtI, tag, {1}, {truth}, [](In x) { return -x[0]; });
  sheet.row("to f32", kIToF, kF32, {1, 0}, {a},
            [=](In x) { return bits_of_float(static_cast<float>(sign_of(x[0], width))); });
  sheet.row("unsigned to f32", kIToF, kF32, {0, 0}, {a},
            [](In x) { return bits_of_float(static_cast<float>(x[0])); });
  check(sheet);
}

INSTANTIATE_TEST_SUITE_P(Widths, TileIntegers, testing::Values(kI8, kI16, kI32, kI64));

// The nearest number of `digits` binary digits, ties to even.
double rounded(double value, int digits, int exponent_min) {
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent = 0;
  std::frexp(value, &exponent);
  const int unit = std::max(exponent - digits, exponent_min - digits + 1);
  return std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
}
double half(double value) { return rounded(value, 11, -14); }
double brain(double value) { return rounded(value, 8, -126); }

const double kSomeFloats[] = {0.0, -0.0, 1.0, -1.5, 3.14159274, 1e-3, -257.25, 65503.0};

void pairs(TileSheet::Values* a, TileSheet::Values* b) {
  for (const double left : kSomeFloats) {
    for (const double right : kSomeFloats) {
      a->push_back(bits_of_float(left));
      b->push_back(bits_of_float(right));
    }
  }
}

TEST_F(TileSheets, SingleArithmeticMatchesHost) {
  TileSheet sheet;
  TileSheet::Values left, right;
  pairs(&left, &right);
  left[20] = bits_of_float(INFINITY);
  right[21] = bits_of_float(NAN);
  const unsigned a = sheet.input(kF32, left), b = sheet.input(kF32, right);
  const auto two = [](auto rule) {
    return [rule](In x) {
      return bits_of_float(
          rule(static_cast<float>(float_of(x[0])), static_cast<float>(float_of(x[1]))));
    };
  };
  constexpr double kExact = 1e-12;  // Except the bits of a NaN.
  sheet.row("add", kAddF, kF32, {0, 0}, {a, b}, two([](float x, float y) { return x + y; }),
            kExact);
  sheet.row("sub", kSubF, kF32, {0, 0}, {a, b}, two([](float x, float y) { return x - y; }),
            kExact);
  sheet.row("mul", kMulF, kF32, {0, 0}, {a, b}, two([](float x, float y) { return x * y; }),
            kExact);
  sheet.row("div", kDivF, kF32, {0, 0}, {a, b}, two([](float x, float y) { return x / y; }),
            kExact);
  sheet.row("fma", kFma, kF32, {0, 0}, {a, b, a},
            two([](float x, float y) { return std::fmaf(x, y, x); }), kExact);
  sheet.row("max", kMaxF, kF32, {0}, {a, b}, two([](float x, float y) { return std::fmax(x, y); }),
            kExact);
  sheet.row("min NaN", kMinF, kF32, {1}, {a, b}, two([](float x, float y) {
              return std::isnan(x) || std::isnan(y) ? NAN : std::fmin(x, y);
            }),
            kExact);
  sheet.row("neg", kNegF, kF32, {}, {b}, [](In x) { return x[0] ^ 0x80000000; });
  sheet.row("abs", kAbsF, kF32, {}, {b}, [](In x) { return x[0] & 0x7fffffff; });
  for (unsigned predicate = 0; predicate < 6; ++predicate) {
    for (const std::uint64_t ordered : {0, 1}) {
      sheet.row(kComparisonNames[predicate], kCmpF, kI1, {predicate, ordered}, {a, b},
                [=](In x) -> std::uint64_t {
                  const double p = float_of(x[0]), q = float_of(x[1]);
                  if (std::isnan(p) || std::isnan(q)) return ordered == 0;
                  return holds(predicate, p, q);
                });
    }
  }
  check(sheet);
}

TEST_F(TileSheets, SingleFunctionsStayWithinTolerance) {
  TileSheet sheet;
  TileSheet::Values values;
  for (unsigned i = 0; i < kSheetElements; ++i) values.push_back(bits_of_float(0.37 * i - 9));
  values[0] = bits_of_float(-60);
  values[1] = bits_of_float(85);
  values[2] = bits_of_float(-INFINITY);
  values[3] = bits_of_float(INFINITY);
  values[4] = bits_of_float(NAN);
  const unsigned a = sheet.input(kF32, values);
  const auto add = [&](const char* name, unsigned code, std::vector<std::uint64_t> head,
                       double (*rule)(double), double tolerance) {
    sheet.row(
        name, code, kF32, std::move(head), {a},
        [rule](In x) { return bits_of_float(rule(float_of(x[0]))); }, tolerance);
  };
  add(
      "exp", kExp, {}, [](double x) { return std::exp(x); }, 4e-7);
  add(
      "exp2", kExp2, {0}, [](double x) { return std::exp2(x); }, 4e-7);
  add(
      "log", kLog, {}, [](double x) { return std::log(x); }, 1e-6);
  add(
      "log2", kLog2, {}, [](double x) { return std::log2(x); }, 1e-6);
  add(
      "sqrt", kSqrt, {0, 0}, [](double x) { return std::sqrt(x); }, 1e-7);
  add(
      "rsqrt", kRsqrt, {0}, [](double x) { return 1 / std::sqrt(x); }, 4e-7);
  add(
      "ceil", kCeil, {}, [](double x) { return std::ceil(x); }, 1e-12);
  add(
      "floor", kFloor, {}, [](double x) { return std::floor(x); }, 1e-12);
  add(
      "tanh", kTanH, {}, [](double x) { return std::tanh(x); }, 1e-3);
  check(sheet);
}

// f16 and bf16 are rounded once, also after a fused product and sum.
TEST_F(TileSheets, ConversionToNarrowFloatsRounds) {
  for (const TileTag tag : {kF16, kBF16}) {
    TileSheet wide;
    TileSheet::Values left, right;
    pairs(&left, &right);
    double (*const to)(double) = tag == kF16 ? half : brain;
    const unsigned a = wide.input(kF32, left);
    wide.row("there", kFToF, tag, {0}, {a}, [=](In x) -> std::uint64_t {
      const double value = to(float_of(x[0]));
      if (tag == kBF16) return bits_of_float(value) >> 16;
      // Normal numbers and zeros only.
      const std::uint64_t bits = bits_of_float(value);
      if ((bits & 0x7fffffff) == 0) return bits >> 16;
      return (bits >> 16 & 0x8000) | ((bits >> 13 & 0x3ffff) - (112 << 10)) % 0x8000;
    });
    check(wide);
  }
}

TEST_F(TileSheets, NarrowArithmeticMatchesHost) {
  for (const TileTag tag : {kF16, kBF16}) {
    double (*const to)(double) = tag == kF16 ? half : brain;
    const auto encode = [=](double value) -> std::uint64_t {
      const std::uint64_t bits = bits_of_float(to(value));
      if (tag == kBF16) return bits >> 16;
      if ((bits & 0x7fffffff) == 0) return bits >> 16;
      return (bits >> 16 & 0x8000) | ((bits >> 13 & 0x3ffff) - (112 << 10)) % 0x8000;
    };
    const auto decode = [=](std::uint64_t bits) {
      if (tag == kBF16) return float_of(bits << 16);
      const double size = std::ldexp(1024 + static_cast<double>(bits & 0x3ff),
                                     static_cast<int>(bits >> 10 & 31) - 25);
      if ((bits & 0x7fff) == 0) return 0.0;
      return (bits & 0x8000) != 0 ? -size : size;
    };
    TileSheet sheet;
    TileSheet::Values left, right;
    const double some[] = {1.0009765625, -3.140625, 0.3333, 100.5, -7, 1.5, 0.0625, 2.71828};
    for (const double x : some) {
      for (const double y : some) {
        left.push_back(encode(x));
        right.push_back(encode(y));
      }
    }
    const unsigned a = sheet.input(tag, left), b = sheet.input(tag, right);
    sheet.row("add", kAddF, tag, {0, 0}, {a, b},
              [=](In x) { return encode(decode(x[0]) + decode(x[1])); });
    sheet.row("mul", kMulF, tag, {0, 0}, {a, b},
              [=](In x) { return encode(decode(x[0]) * decode(x[1])); });
    sheet.row("div", kDivF, tag, {0, 0}, {a, b},
              [=](In x) { return encode(decode(x[0]) / decode(x[1])); });
    sheet.row("fma", kFma, tag, {0, 0}, {a, b, b},
              [=](In x) { return encode(decode(x[0]) * decode(x[1]) + decode(x[1])); });
    sheet.row("neg", kNegF, tag, {}, {a}, [](In x) { return x[0] ^ 0x8000; });
    sheet.row("to f32", kFToF, kF32, {0}, {a}, [=](In x) { return bits_of_float(decode(x[0])); });
    sheet.row("to i32", kFToI, kI32, {1, 6}, {a}, [=](In x) {
      return static_cast<std::uint64_t>(static_cast<std::int64_t>(decode(x[0])));
    });
    sheet.row("bits", kBitcast, kI16, {}, {a}, [](In x) { return x[0]; });
    sheet.row("lt", kCmpF, kI1, {2, 1}, {a, b},
              [=](In x) -> std::uint64_t { return decode(x[0]) < decode(x[1]); });
    check(sheet);
  }
}

TEST_F(TileSheets, DoubleAndE4m3OperationsMatchHost) {
  TileSheet sheet;
  TileSheet::Values values, eights;
  for (unsigned i = 0; i < kSheetElements; ++i) {
    values.push_back(bits_of_float(1.0 / (i + 1)));
    eights.push_back(i + 8);  // Normal numbers with four or five exponent bits.
  }
  const unsigned a = sheet.input(kF32, values), b = sheet.input(kE4M3, eights);
  const auto bits_of_double = [](double value) {
    std::uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
  };
  sheet.row("to f64", kFToF, kF64, {0}, {a}, [=](In x) { return bits_of_double(float_of(x[0])); });
  sheet.row("from e4m3", kFToF, kF32, {0}, {b}, [](In x) {
    return bits_of_float(
        std::ldexp(8 + static_cast<double>(x[0] & 7), static_cast<int>(x[0] >> 3) - 10));
  });
  check(sheet);
  TileSheet doubles;
  TileSheet::Values left;
  for (unsigned i = 0; i < kSheetElements; ++i) left.push_back(bits_of_double(i - 20.3));
  const unsigned c = doubles.input(kF64, left);
  const auto value_of = [](std::uint64_t bits) {
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  };
  doubles.row("square", kMulF, kF64, {0, 0}, {c, c},
              [=](In x) { return bits_of_double(value_of(x[0]) * value_of(x[0])); });
  doubles.row("floor", kFloor, kF64, {}, {c},
              [=](In x) { return bits_of_double(std::floor(value_of(x[0]))); });
  doubles.row("to f32", kFToF, kF32, {0}, {c}, [=](In x) { return bits_of_float(value_of(x[0])); });
  doubles.row("to i64", kFToI, kI64, {1, 6}, {c}, [=](In x) {
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(value_of(x[0])));
  });
  check(doubles);
}

}  // namespace
}  // namespace gpurun::test
