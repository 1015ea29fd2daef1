// Integer and bit instructions: each computes what the PTX ISA says, also at the edges (overflow,
// division by zero, shifts beyond the width).
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "kernel_harness.h"

namespace gpurun::emulated {
namespace {

constexpr Inputs kInputs[] = {
    {0, 0, 0},
    {1, 2, 3},
    {~0ull, 1, 31},
    {~0ull, ~0ull, ~0ull},
    {0x8000000080008000ull, ~0ull, 0x7fff7fff7fff7fffull},
    {0x7fffffff7fffffffull, 0x7fffffff7fffffffull, 1},
    {0x0123456789abcdefull, 0xfedcba9876543210ull, 0x0f1e2d3c4b5a6978ull},
    {0xdeadbeefcafef00dull, 33, 8},
    {5, 200, 7},
    {0xfffffffffffffff9ull, 3, 2},
};

using U64 = std::uint64_t;
using Cases = std::vector<InstructionCase>;
using Wide = unsigned __int128;
using SignedWide = __int128;

// The number that a value with `bits` bits stands for.
SignedWide number(U64 value, unsigned bits, bool is_signed) {
  if (bits < 64) value &= (U64{1} << bits) - 1;
  if (!is_signed) return static_cast<SignedWide>(value);
  return static_cast<std::int64_t>(value << (64 - bits)) >> (64 - bits);
}

U64 low(SignedWide value) { return static_cast<U64>(value); }

SignedWide clamp(SignedWide value, SignedWide least, SignedWide most) {
  return value < least ? least : value > most ? most : value;
}

void add_arithmetic(Cases& cases, unsigned bits, bool is_signed) {
  const std::string type = (is_signed ? "s" : "u") + std::to_string(bits);
  const auto value = [=](U64 v) { return number(v, bits, is_signed); };
  const std::vector<unsigned> two{bits, bits};
  const std::vector<unsigned> three{bits, bits, bits};
  const auto binary = [&](const std::string& name, auto f) {
    cases.push_back({name + "." + type, bits, two, "",
                     [=](U64 a, U64 b, U64) { return low(f(value(a), value(b))); }});
  };
  using S = SignedWide;
  const auto product = [](S a, S b) {
    return static_cast<S>(static_cast<Wide>(a) * static_cast<Wide>(b));
  };
  binary("add", [](S a, S b) { return a + b; });
  binary("sub", [](S a, S b) { return a - b; });
  binary("mul.lo", product);
  binary("mul.hi", [=](S a, S b) { return product(a, b) >> bits; });
  binary("min", [](S a, S b) { return a < b ? a : b; });
  binary("max", [](S a, S b) { return a < b ? b : a; });
  binary("div", [](S a, S b) { return b == 0 ? S{-1} : a / b; });
  binary("rem", [](S a, S b) { return b == 0 ? a : a % b; });
  cases.push_back({"mad.lo." + type, bits, three, "", [=](U64 a, U64 b, U64 c) {
                     return low(product(value(a), value(b))) + low(value(c));
                   }});
  cases.push_back({"mad.hi." + type, bits, three, "", [=](U64 a, U64 b, U64 c) {
                     return low(product(value(a), value(b)) >> bits) + low(value(c));
                   }});
  cases.push_back({"sad." + type, bits, three, "", [=](U64 a, U64 b, U64 c) {
                     const S x = value(a), y = value(b);
                     return low(x < y ? y - x : x - y) + c;
                   }});
  cases.push_back({"shr." + type, bits, {bits, 32}, "", [=](U64 a, U64 b, U64) {
                     return low(value(a) >> clamp(number(b, 32, false), 0, bits));
                   }});
  if (bits < 64) {
    cases.push_back({"mul.wide." + type, bits * 2, two, "",
                     [=](U64 a, U64 b, U64) { return low(product(value(a), value(b))); }});
    cases.push_back(
        {"mad.wide." + type, bits * 2, {bits, bits, bits * 2}, "", [=](U64 a, U64 b, U64 c) {
           return low(product(value(a), value(b))) + c;
         }});
  }
  if (is_signed) {
    cases.push_back(
        {"neg." + type, bits, {bits}, "", [=](U64 a, U64, U64) { return low(-value(a)); }});
    cases.push_back({"abs." + type, bits, {bits}, "", [=](U64 a, U64, U64) {
                       return low(value(a) < 0 ? -value(a) : value(a));
                     }});
  }
}

TEST(IntegerInstructions, ArithmeticMatchesHost) {
  Cases cases;
  for (unsigned bits : {16u, 32u, 64u}) {
    add_arithmetic(cases, bits, false);
    add_arithmetic(cases, bits, true);
  }
  check_instructions(cases, kInputs);
}

void add_bits(Cases& cases, unsigned bits) {
  const std::string type = "b" + std::to_string(bits);
  const auto value = [=](U64 v) { return low(number(v, bits, false)); };
  const auto add = [&](const std::string& name, unsigned result, std::vector<unsigned> sources,
                       auto f) {
    cases.push_back({name + "." + type, result, sources, "", f});
  };
  add("and", bits, {bits, bits}, [](U64 a, U64 b, U64) { return a & b; });
  add("or", bits, {bits, bits}, [](U64 a, U64 b, U64) { return a | b; });
  add("xor", bits, {bits, bits}, [](U64 a, U64 b, U64) { return a ^ b; });
  add("not", bits, {bits}, [](U64 a, U64, U64) { return ~a; });
  add("cnot", bits, {bits}, [=](U64 a, U64, U64) { return U64{value(a) == 0}; });
  add("shl", bits, {bits, 32}, [=](U64 a, U64 b, U64) {
    const U64 amount = b & 0xffffffffu;
    return amount >= bits ? 0 : a << amount;
  });
  if (bits == 16) return;
  add("popc", 32, {bits}, [=](U64 a, U64, U64) { return U64(std::popcount(value(a))); });
  add("clz", 32, {bits},
      [=](U64 a, U64, U64) { return U64(std::countl_zero(value(a))) - (64 - bits); });
  add("brev", bits, {bits}, [=](U64 a, U64, U64) {
    U64 out = 0;
    for (unsigned i = 0; i < bits; ++i) out |= (a >> i & 1) << (bits - 1 - i);
    return out;
  });
}

U64 field(U64 a, unsigned position, unsigned length, unsigned bits, bool is_signed) {
  U64 out = 0;
  for (unsigned i = 0; i < bits; ++i) {
    const unsigned top = length == 0 ? 0 : std::min(position + length - 1, bits - 1);
    const unsigned from = position + i;
    const bool inside = i < length && from < bits;
    const bool sign = is_signed && length != 0 && (a >> top & 1) != 0;
    if (inside ? (a >> from & 1) != 0 : sign) out |= U64{1} << i;
  }
  return out;
}

TEST(IntegerInstructions, BitOperationsMatchHost) {
  Cases cases;
  for (unsigned bits : {16u, 32u, 64u}) add_bits(cases, bits);
  for (unsigned bits : {32u, 64u}) {
    for (bool is_signed : {false, true}) {
      cases.push_back(
          {(is_signed ? "bfe.s" : "bfe.u") + std::to_string(bits),
           bits,
           {bits, 32, 32},
           "",
           [=](U64 a, U64 b, U64 c) { return field(a, b & 255, c & 255, bits, is_signed); }});
    }
  }
  cases.push_back({"lop3.b32", 32, {32, 32, 32}, ", 0xe8", [](U64 a, U64 b, U64 c) {
                     return (a & b) | (a & c) | (b & c);
                   }});
  cases.push_back({"bfi.b32", 32, {32, 32}, ", 4, 8", [](U64 a, U64 b, U64) {
                     return (b & ~U64{0xff0}) | (a << 4 & 0xff0);
                   }});
  cases.push_back({"prmt.b32", 32, {32, 32}, ", 0x7531", [](U64 a, U64 b, U64) {
                     const U64 all = (b << 32) | (a & 0xffffffffu);
                     return (all >> 8 & 255) | (all >> 24 & 255) << 8 | (all >> 40 & 255) << 16 |
                            (all >> 56 & 255) << 24;
                   }});
  cases.push_back({"shf.l.wrap.b32", 32, {32, 32, 32}, "", [](U64 a, U64 b, U64 c) {
                     const U64 all = (b << 32) | (a & 0xffffffffu);
                     return all << (c & 31) >> 32;
                   }});
  cases.push_back({"shf.r.clamp.b32", 32, {32, 32, 32}, "", [](U64 a, U64 b, U64 c) {
                     const U64 all = (b << 32) | (a & 0xffffffffu);
                     return all >> std::min<U64>(c & 0xffffffffu, 32);
                   }});
  check_instructions(cases, kInputs);
}

TEST(IntegerInstructions, SaturationAndComparisonMatchHost) {
  using I32 = std::int32_t;
  Cases cases;
  const auto saturated = [](SignedWide v) { return low(clamp(v, INT32_MIN, INT32_MAX)); };
  cases.push_back({"add.sat.s32", 32, {32, 32}, "", [=](U64 a, U64 b, U64) {
                     return saturated(SignedWide{I32(a)} + I32(b));
                   }});
  cases.push_back({"sub.sat.s32", 32, {32, 32}, "", [=](U64 a, U64 b, U64) {
                     return saturated(SignedWide{I32(a)} - I32(b));
                   }});
  for (unsigned bits : {16u, 32u, 64u}) {
    for (bool is_signed : {false, true}) {
      const std::string type = (is_signed ? "s" : "u") + std::to_string(bits);
      const auto value = [=](U64 v) { return number(v, bits, is_signed); };
      cases.push_back({"setp.lt." + type, 1, {bits, bits}, "", [=](U64 a, U64 b, U64) {
                         return U64{value(a) < value(b)};
                       }});
      cases.push_back({"setp.ge." + type, 1, {bits, bits}, "", [=](U64 a, U64 b, U64) {
                         return U64{value(a) >= value(b)};
                       }});
      cases.push_back({"set.ne.u32." + type, 32, {bits, bits}, "", [=](U64 a, U64 b, U64) {
                         return value(a) != value(b) ? 0xffffffffu : U64{0};
                       }});
    }
  }
  check_instructions(cases, kInputs);
}

TEST(IntegerInstructions, ConversionsMatchHost) {
  Cases cases;
  for (unsigned from : {8u, 16u, 32u, 64u}) {
    for (unsigned to : {8u, 16u, 32u, 64u}) {
      for (unsigned signs = 0; signs < 4; ++signs) {
        const bool from_signed = (signs & 1) != 0;
        const bool to_signed = (signs & 2) != 0;
        const std::string types = (to_signed ? ".s" : ".u") + std::to_string(to) +
                                  (from_signed ? ".s" : ".u") + std::to_string(from);
        const unsigned source = std::max(from, 16u);
        const unsigned result = std::max(to, 16u);
        // A result narrower than its register is extended by its own sign.
        const auto widened = [=](SignedWide v) { return low(number(low(v), to, to_signed)); };
        cases.push_back({"cvt" + types, result, {source}, "", [=](U64 a, U64, U64) {
                           return widened(number(a, from, from_signed));
                         }});
      }
    }
  }
  check_instructions(cases, kInputs);
}

}  // namespace
}  // namespace gpurun::emulated
