// Integer and bit instructions: every accepted variant.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>

#include "reference.h"

namespace gpurun::emulated {
namespace {

using namespace test;
using S = __int128;

S value(const TypeFacts& type, U64 bits) {
  bits = low_bits(bits, type.bits);
  if (type.kind != 's') return static_cast<S>(bits);
  return static_cast<std::int64_t>(bits << (64 - type.bits)) >> (64 - type.bits);
}
S multiplied(S a, S b) {
  return static_cast<S>(static_cast<unsigned __int128>(a) * static_cast<unsigned __int128>(b));
}
S clamped(S v, S least, S most) { return v < least ? least : v > most ? most : v; }

bool is_integer_name(const Name& name) {
  return !name.types.empty() && !facts_of(name.types.back()).is_float();
}

// Without carries ------------------------------------------------------------------------------

S arithmetic(const Name& name, const TypeFacts& type, U64 a, U64 b, U64 c) {
  const S x = value(type, a);
  const S y = value(type, b);
  const S most = (S{1} << 31) - 1;
  const auto saturated = [&](S v) { return name.has("sat") ? clamped(v, -most - 1, most) : v; };
  if (name.opcode == "add") return saturated(x + y);
  if (name.opcode == "sub") return saturated(x - y);
  if (name.opcode == "div") return y == 0 ? S{-1} : x / y;
  if (name.opcode == "rem") return y == 0 ? x : x % y;
  if (name.opcode == "neg") return -x;
  if (name.opcode == "abs") return x < 0 ? -x : x;
  if (name.opcode == "min" || name.opcode == "max") {
    const S result = name.opcode == "min" ? std::min(x, y) : std::max(x, y);
    return name.has("relu") ? std::max(result, S{0}) : result;
  }
  if (name.opcode == "sad") return (x < y ? y - x : x - y) + value(type, c);
  if (name.opcode == "mul24" || name.opcode == "mad24") {
    const auto low24 = [&](U64 v) {
      return type.kind == 's' ? S{static_cast<std::int32_t>(v << 8) >> 8} : S{low_bits(v, 24)};
    };
    const S product = multiplied(low24(a), low24(b));
    const S part =
        static_cast<S>(low_bits(static_cast<U64>(name.has("hi") ? product >> 16 : product), 32));
    return name.opcode == "mad24" ? part + value(type, c) : part;
  }
  const S product = multiplied(x, y);  // mul, mad
  if (name.has("wide")) {
    TypeFacts wide = type;
    wide.bits *= 2;
    return name.opcode == "mad" ? product + value(wide, c) : product;
  }
  S part = product;
  if (name.has("hi")) {
    part = product >> type.bits;
    if (type.kind == 'u' && type.bits == 64) {
      part = static_cast<S>(static_cast<unsigned __int128>(product) >> 64);
    }
  }
  if (name.opcode == "mul") return part;
  TypeFacts half = type;
  return saturated(value(half, static_cast<U64>(part)) + value(type, c));
}

TEST(InstructionVariants, IntegerArithmeticMatchesReference) {
  check_variants({"add", "sub", "mul", "mad", "mul24", "mad24", "div", "rem", "neg", "abs", "min",
                  "max", "sad"},
                 [](const Name& name) {
                   if (!is_integer_name(name) || name.has("cc")) return InstructionCase{};
                   const TypeFacts type = facts_of(name.type());
                   const unsigned result = name.has("wide") ? 2 * type.bits : type.bits;
                   std::vector<unsigned> sources{type.bits};
                   if (name.opcode != "neg" && name.opcode != "abs") sources.push_back(type.bits);
                   if (name.opcode == "mad" || name.opcode == "mad24" || name.opcode == "sad") {
                     sources.push_back(result);
                   }
                   return InstructionCase{
                       "", result, sources, "", [=](U64 a, U64 b, U64 c) {
                         return static_cast<U64>(arithmetic(name, type, a, b, c));
                       }};
                 });
}

TEST(InstructionVariants, PackedHalvesMatchReference) {
  check_variants({"add", "min", "max"}, [](const Name& name) {
    if (!name.has("u16x2") && !name.has("s16x2")) return InstructionCase{};
    const TypeFacts type = facts_of(name.has("s16x2") ? "s16" : "u16");
    return InstructionCase{"", 32, {32, 32}, "", [=](U64 a, U64 b, U64) {
                             const auto half = [&](U64 x, U64 y) {
                               return low_bits(static_cast<U64>(arithmetic(name, type, x, y, 0)),
                                               16);
                             };
                             return half(a, b) | half(a >> 16, b >> 16) << 16;
                           }};
  });
}

TEST(InstructionVariants, DotProductsMatchReference) {
  check_variants({"dp4a", "dp2a"}, [](const Name& name) {
    const bool four = name.opcode == "dp4a";
    return InstructionCase{
        "", 32, {32, 32, 32}, "", [=](U64 a, U64 b, U64 c) {
          const auto part = [](U64 v, unsigned at, unsigned bits, bool is_signed) {
            TypeFacts type;
            type.bits = bits;
            type.kind = is_signed ? 's' : 'u';
            return value(type, v >> at);
          };
          const unsigned wide = four ? 8 : 16;
          S sum = static_cast<S>(low_bits(c, 32));
          for (unsigned i = 0; i < (four ? 4u : 2u); ++i) {
            sum += part(a, i * wide, wide, name.type(0)[0] == 's') *
                   part(b, 8 * i + (name.has("hi") ? 16 : 0), 8, name.type(1)[0] == 's');
          }
          return static_cast<U64>(sum);
        }};
  });
}

// Bits -----------------------------------------------------------------------------------------

U64 bit_operation(const Name& name, const TypeFacts& type, U64 a, U64 b) {
  const unsigned bits = type.bits;
  a = low_bits(a, bits);
  if (name.opcode == "and") return a & b;
  if (name.opcode == "or") return a | b;
  if (name.opcode == "xor") return a ^ b;
  if (name.opcode == "not") return ~a;
  if (name.opcode == "cnot") return U64{a == 0};
  if (name.opcode == "popc") return static_cast<U64>(std::popcount(a));
  if (name.opcode == "clz") return static_cast<U64>(std::countl_zero(a)) - (64 - bits);
  if (name.opcode == "brev") {
    U64 out = 0;
    for (unsigned i = 0; i < bits; ++i) out |= (a >> i & 1) << (bits - 1 - i);
    return out;
  }
  const U64 amount = std::min<U64>(low_bits(b, 32), bits);  // shl, shr
  if (name.opcode == "shl") return amount == bits ? 0 : a << amount;
  return static_cast<U64>(value(type, a) >> amount);
}

TEST(InstructionVariants, BitOperationsMatchReference) {
  check_variants({"and", "or", "xor", "not", "cnot", "popc", "clz", "brev", "shl", "shr"},
                 [](const Name& name) {
                   const TypeFacts type = facts_of(name.type());
                   const bool counts = name.opcode == "popc" || name.opcode == "clz";
                   std::vector<unsigned> sources{type.bits};
                   if (name.opcode == "shl" || name.opcode == "shr") sources.push_back(32);
                   if (name.opcode == "and" || name.opcode == "or" || name.opcode == "xor") {
                     sources.push_back(type.bits);
                   }
                   return InstructionCase{
                       "", counts ? 32 : type.bits, sources, "",
                       [=](U64 a, U64 b, U64) { return bit_operation(name, type, a, b); }};
                 });
}

TEST(InstructionVariants, BitFieldsMatchReference) {
  check_variants({"bfe", "bmsk", "bfind", "shf", "szext"}, [](const Name& name) {
    const TypeFacts type = facts_of(name.type());
    const unsigned bits = type.bits;
    if (name.opcode == "bfe") {
      return InstructionCase{"", bits, {bits, 32, 32}, "", [=](U64 a, U64 b, U64 c) {
                               const unsigned at = b & 255;
                               const unsigned length = c & 255;
                               const unsigned top = std::min(at + length - 1, bits - 1);
                               const bool sign =
                                   type.kind == 's' && length != 0 && (a >> top & 1) != 0;
                               U64 out = 0;
                               for (unsigned i = 0; i < bits; ++i) {
                                 const bool inside = i < length && at + i < bits;
                                 if (inside ? (a >> (at + i) & 1) != 0 : sign) out |= U64{1} << i;
                               }
                               return out;
                             }};
    }
    if (name.opcode == "bmsk") {
      return InstructionCase{"", 32, {32, 32}, "", [=](U64 a, U64 b, U64) {
                               U64 at = low_bits(a, 32);
                               U64 length = low_bits(b, 32);
                               if (name.has("wrap")) at &= 31, length &= 31;
                               U64 out = 0;
                               for (U64 i = at; i < 32 && i < at + length; ++i) out |= U64{1} << i;
                               return out;
                             }};
    }
    if (name.opcode == "szext") {
      return InstructionCase{"", 32, {32, 32}, "", [=](U64 a, U64 b, U64) {
                               const U64 count =
                                   name.has("wrap") ? b & 31 : std::min<U64>(low_bits(b, 32), 32);
                               if (count == 0) return U64{0};
                               TypeFacts part = type;
                               part.bits = static_cast<unsigned>(count);
                               return static_cast<U64>(value(part, a));
                             }};
    }
    if (name.opcode == "bfind") {
      return InstructionCase{"", 32, {bits}, "", [=](U64 a, U64, U64) {
                               a = low_bits(a, bits);
                               if (value(type, a) < 0) a = low_bits(~a, bits);
                               const int at = 63 - std::countl_zero(a);
                               if (at < 0) return ~U64{0};
                               return name.has("shiftamt") ? U64{bits - 1} - static_cast<U64>(at)
                                                           : static_cast<U64>(at);
                             }};
    }
    return InstructionCase{
        "", 32, {32, 32, 32}, "", [=](U64 a, U64 b, U64 c) {
          const U64 all = b << 32 | low_bits(a, 32);
          const U64 n = name.has("wrap") ? c & 31 : std::min<U64>(low_bits(c, 32), 32);
          return name.has("l") ? (n == 32 ? all << 32 : all << n) >> 32 : all >> n;
        }};
  });
}

// lop3 with every table, bfi and prmt with every selector of the inputs.
TEST(InstructionVariants, Lop3BfiAndPrmtMatchReference) {
  std::vector<InstructionCase> cases;
  for (unsigned table = 0; table < 256; ++table) {
    cases.push_back(
        {"lop3.b32", 32, {32, 32, 32}, ", " + std::to_string(table), [=](U64 a, U64 b, U64 c) {
           U64 out = 0;
           for (unsigned i = 0; i < 32; ++i) {
             const U64 index = (a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1);
             out |= (table >> index & 1ull) << i;
           }
           return out;
         }});
  }
  for (unsigned bits : {32u, 64u}) {
    for (unsigned at : {0u, 5u, 31u, 40u, 63u, 64u, 255u}) {
      for (unsigned length : {0u, 1u, 8u, 32u, 64u, 255u}) {
        cases.push_back({"bfi.b" + std::to_string(bits),
                         bits,
                         {bits, bits},
                         ", " + std::to_string(at) + ", " + std::to_string(length),
                         [=](U64 a, U64 b, U64) {
                           for (unsigned i = 0; i < length && at + i < bits; ++i) {
                             b = (b & ~(U64{1} << (at + i))) | (a >> i & 1) << (at + i);
                           }
                           return b;
                         }});
      }
    }
  }
  // The bytes that each mode takes for c = 0..3 (PTX ISA, section 9.7.9.7), lowest first.
  const std::pair<const char*, std::array<unsigned, 16>> kModes[] = {
      {".f4e", {0, 1, 2, 3, 1, 2, 3, 4, 2, 3, 4, 5, 3, 4, 5, 6}},
      {".b4e", {0, 7, 6, 5, 1, 0, 7, 6, 2, 1, 0, 7, 3, 2, 1, 0}},
      {".rc8", {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3}},
      {".ecl", {0, 1, 2, 3, 1, 1, 2, 3, 2, 2, 2, 3, 3, 3, 3, 3}},
      {".ecr", {0, 0, 0, 0, 0, 1, 1, 1, 0, 1, 2, 2, 0, 1, 2, 3}},
      {".rc16", {0, 1, 0, 1, 2, 3, 2, 3, 0, 1, 0, 1, 2, 3, 2, 3}},
  };
  for (const auto& [mode, bytes] : kModes) {
    cases.push_back({"prmt.b32" + std::string(mode),
                     32,
                     {32, 32, 32},
                     "",
                     [taken = bytes](U64 a, U64 b, U64 c) {
                       const U64 all = b << 32 | low_bits(a, 32);
                       U64 out = 0;
                       for (unsigned i = 0; i < 4; ++i) {
                         out |= (all >> (8 * taken[(c & 3) * 4 + i]) & 255) << (8 * i);
                       }
                       return out;
                     }});
  }
  cases.push_back({"prmt.b32", 32, {32, 32, 32}, "", [](U64 a, U64 b, U64 c) {
                     const U64 all = b << 32 | low_bits(a, 32);
                     U64 out = 0;
                     for (unsigned i = 0; i < 4; ++i) {
                       const U64 selector = c >> (4 * i) & 15;
                       U64 byte = all >> (8 * (selector & 7)) & 255;
                       if ((selector & 8) != 0) byte = (byte & 128) != 0 ? 255 : 0;
                       out |= byte << (8 * i);
                     }
                     return out;
                   }});
  check_instructions(cases, all_inputs());
}

// Carries --------------------------------------------------------------------------------------

// d = the instruction's result with the carry that the lowest bit of c gives. e = the carry after
// it.
TEST(InstructionVariants, CarryChainsMatchReference) {
  std::vector<Inputs> inputs(all_inputs().begin(), all_inputs().begin() + 100);
  std::vector<ThreadCase> cases;
  for (const std::string opcode : {"add", "sub", "addc", "subc", "mad", "madc"}) {
    for (const std::string& variant : variants_of(opcode)) {
      const Name name(variant);
      const bool takes = opcode.back() == 'c';
      if (!is_integer_name(name) || (!name.has("cc") && !takes)) continue;
      const TypeFacts type = facts_of(name.type());
      const unsigned bits = type.bits;
      const std::string w = std::to_string(bits);
      const bool mad = opcode.starts_with("mad");
      const std::string text = "and.b32 %t0, %c32, 1; add.cc.u32 %t1, %t0, -1;\n" + variant +
                               " %d" + w + ", %a" + w + ", %b" + w + (mad ? ", %c" + w : "") +
                               ";\naddc.u" + w + " %e" + w + ", 0, 0;";
      cases.push_back(
          {text, bits, [=](unsigned thread) {
             const Inputs& in = inputs[thread];
             const S carry = in.c & 1;
             const S all = S{1} << bits;
             const S a = static_cast<S>(low_bits(in.a, bits));
             const S b = static_cast<S>(low_bits(in.b, bits));
             S total = 0;
             if (mad) {
               S product = multiplied(value(type, in.a), value(type, in.b));
               if (name.has("hi")) {
                 product = type.kind == 's'
                               ? product >> bits
                               : static_cast<S>(static_cast<unsigned __int128>(product) >> bits);
               }
               total = static_cast<S>(low_bits(static_cast<U64>(product), bits)) +
                       static_cast<S>(low_bits(in.c, bits)) + (takes ? carry : 0);
             } else if (opcode.starts_with("sub")) {
               total = a - b - (takes ? carry : 0);
             } else {
               total = a + b + (takes ? carry : 0);
             }
             const bool out = total < 0 || total >= all;
             const bool kept = !name.has("cc");  // Leaves the carry as it was.
             return std::pair<U64, U64>{static_cast<U64>(total), kept ? U64(carry) : U64{out}};
           }});
    }
  }
  check_threads(cases, inputs);
}

}  // namespace
}  // namespace gpurun::emulated
