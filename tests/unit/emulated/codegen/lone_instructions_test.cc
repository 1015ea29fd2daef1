// Other instructions: address spaces, cache hints, wide accesses, narrow formats, SIMD video
// instructions.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernel_harness.h"

namespace gpurun::emulated {
namespace {

using U64 = std::uint64_t;
constexpr char kTop[] = ".version 9.0\n.target sm_120\n.address_size 64\n";

TEST(AddressSpaces, IsspacepDistinguishesSpaces) {
  const std::string text = std::string(kTop) + R"(
.global .align 4 .u32 variable;
.const .align 4 .u32 fixed;
.entry k(.param .u64 in, .param .u64 out) {
  .shared .align 4 .b8 block[16]; .local .align 4 .b8 own[16];
  .reg .b64 %in, %out, %a<5>; .reg .b32 %r<6>; .reg .pred %p<5>;
  ld.param.u64 %in, [in]; ld.param.u64 %out, [out];
  cvta.shared.u64 %a0, block; cvta.local.u64 %a1, own; cvta.global.u64 %a2, variable;
  cvta.param.u64 %a3, in; mov.u64 %a4, %in;
)" + [] {
    std::string body;
    for (int i = 0; i < 5; ++i) {
      const std::string a = "%a" + std::to_string(i);
      body += "mov.b32 %r0, 0;\n";
      int bit = 0;
      for (const char* space :
           {"shared", "local", "global", "param", "shared::cta", "param::entry"}) {
        body += std::string("isspacep.") + space + " %p0, " + a + ";\nselp.b32 %r1, " +
                std::to_string(1 << bit++) + ", 0, %p0;\nor.b32 %r0, %r0, %r1;\n";
      }
      body += "st.u32 [%out+" + std::to_string(4 * i) + "], %r0;\n";
    }
    return body;
  }() + "ret; }";
  std::uint32_t in = 0, out[5] = {};
  const Status status = run_grid(text, {1, 1}, &in, out);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(out[0], 1u | 16u);
  EXPECT_EQ(out[1], 2u);
  EXPECT_EQ(out[2], 4u);
  EXPECT_EQ(out[3], 8u | 32u);
  EXPECT_EQ(out[4], 4u);
}

TEST(MemoryInstructions, WideAccessesAndCacheHintsMoveData) {
  const std::string text = std::string(kTop) + R"(
.entry k(.param .u64 in, .param .u64 out) {
  .reg .b64 %in, %out, %d<3>; .reg .b32 %r<8>; .reg .b128 %q<2>;
  ld.param.u64 %in, [in]; ld.param.u64 %out, [out];
  prefetch.global.L2 [%in]; prefetch.L1 [%in+4]; prefetchu.L1 [%in];
  prefetch.global.L2::evict_last [%in]; applypriority.global.L2::evict_normal [%in], 128;
  ld.global.nc.v8.b32 {%r0, %r1, %r2, _, %r4, %r5, %r6, %r7}, [%in];
  mov.u32 %r3, 7;
  st.global.v8.b32 [%out], {%r7, %r6, %r5, %r4, %r3, %r2, %r1, %r0};
  ld.global.b128 %q0, [%in];
  mov.b128 {%d0, %d1}, %q0;
  mov.b128 %q1, {%d1, %d0};
  st.global.b128 [%out+32], %q1;
  mov.u64 %d2, 0;
  ld.global.L2::cache_hint.u32 %r0, [%in+4], %d2;
  st.global.L2::cache_hint.u32 [%out+48], %r0, %d2;
  ret; })";
  alignas(16) const std::uint32_t in[8] = {10, 11, 12, 13, 14, 15, 16, 17};
  alignas(16) std::uint32_t out[13] = {};
  const Status status = run_kernel(text, in, out);
  ASSERT_TRUE(status.ok()) << status.to_string();
  const std::uint32_t want[13] = {17, 16, 15, 14, 7, 12, 11, 10, 12, 13, 10, 11, 11};
  for (int i = 0; i < 13; ++i) EXPECT_EQ(out[i], want[i]) << i;
}

// Narrow formats ----------------------------------------------------------------------------------

std::vector<Inputs> float_inputs() {
  std::vector<Inputs> inputs;
  const auto add = [&](float x, float y) {
    inputs.push_back({std::bit_cast<std::uint32_t>(x), std::bit_cast<std::uint32_t>(y), 0});
  };
  for (int i = 0; i < 400; ++i) {
    const float x = std::ldexp(1.0f + static_cast<float>(i % 37) / 32, i % 41 - 22);
    add(i % 3 == 0 ? -x : x, std::ldexp(static_cast<float>(i) + 0.5f, i % 13 - 12));
  }
  const float inf = std::numeric_limits<float>::infinity();
  for (const float x :
       {0.0f, -0.0f, inf, -inf, std::nanf(""), 448.0f, 449.0f, 464.0f, 465.0f, 57344.0f, 65536.0f,
        3.0e38f, -3.4028235e38f, 1e-45f, 0x1p-10f, 0x1.8p-10f, 0x1p-17f, 0x1.8p-17f, -0x1p-9f}) {
    add(x, 1.0f);
    add(1.0f, x);
  }
  return inputs;
}

// The byte with the nearest value, found by trying all bytes.
U64 nearest_byte(double x, int mantissa_bits, bool relu) {
  if (std::isnan(x)) return 0x7f;
  if (relu && (x < 0 || (x == 0 && std::signbit(x)))) return 0;
  const int bias = mantissa_bits == 3 ? 7 : 15;
  const unsigned most = mantissa_bits == 3 ? 0x7e : 0x7b;
  const double size = std::min(std::fabs(x), 1e9);  // Distances stay exact.
  U64 best = 0;
  double best_distance = std::numeric_limits<double>::infinity();
  for (unsigned byte = 0; byte <= most; ++byte) {
    const int exponent = static_cast<int>(byte >> mantissa_bits);
    const double fraction =
        static_cast<double>(byte & ((1u << mantissa_bits) - 1)) / (1 << mantissa_bits);
    const double value =
        exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
    const double distance = std::fabs(value - size);
    if (distance < best_distance || (distance == best_distance && byte % 2 == 0)) {
      best = byte;
      best_distance = distance;
    }
  }
  return best | (std::signbit(x) ? 0x80 : 0);
}

float as_float(U64 bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits)); }

TEST(NarrowFormats, ConversionToBytesRoundsToNearest) {
  std::vector<InstructionCase> cases;
  for (const int mantissa : {3, 2}) {
    for (const bool relu : {false, true}) {
      const std::string name = std::string("cvt.rn.satfinite") + (relu ? ".relu" : "") +
                               (mantissa == 3 ? ".e4m3x2" : ".e5m2x2") + ".f32";
      cases.push_back({name, 16, {32, 32}, "", [=](U64 a, U64 b, U64) {
                         return nearest_byte(as_float(a), mantissa, relu) << 8 |
                                nearest_byte(as_float(b), mantissa, relu);
                       }});
    }
  }
  check_instructions(cases, float_inputs());
}

// The bits of a half with the value of a byte.
U64 half_of_byte(unsigned byte, int mantissa) {
  if (mantissa == 2) return U64{byte} << 8;
  if ((byte & 0x7f) == 0x7f) return 0x7fff;
  const U64 sign = U64{byte & 0x80u} << 8;
  const unsigned size = byte & 0x7f;
  if (size >= 8) return sign | ((U64{size} << 7) + (U64{8} << 10));  // The bias is 8 less.
  static constexpr U64 kSmall[8] = {0, 0x1800, 0x1c00, 0x1e00, 0x2000, 0x2100, 0x2200, 0x2300};
  return sign | kSmall[size];
}

TEST(NarrowFormats, ConversionFromBytesIsExact) {
  std::vector<InstructionCase> cases;
  for (const int mantissa : {3, 2}) {
    cases.push_back({std::string("cvt.rn.f16x2.") + (mantissa == 3 ? "e4m3x2" : "e5m2x2"),
                     32,
                     {16},
                     "",
                     [=](U64 a, U64, U64) {
                       return half_of_byte(a & 0xff, mantissa) |
                              half_of_byte(a >> 8 & 0xff, mantissa) << 16;
                     }});
  }
  std::vector<Inputs> inputs;
  for (unsigned byte = 0; byte < 0x7c; ++byte) inputs.push_back({byte | (byte ^ 0x80u) << 8, 0, 0});
  check_instructions(cases, inputs);
}

U64 tf32(float x, const std::string& name) {
  if (std::isnan(x)) return 0x7fffffff;
  if (name.find("relu") != std::string::npos && std::signbit(x)) return 0;
  const double size = std::fabs(static_cast<double>(x));
  double value = size;
  if (size != 0 && !std::isinf(size)) {
    const double unit = std::ldexp(1.0, std::max(std::ilogb(size), -126) - 10);
    const double below = std::floor(size / unit);
    const double rest = size / unit - below;
    const bool odd = std::fmod(below, 2) == 1;
    bool up = rest > 0.5 || (rest == 0.5 && (odd || name.find("rna") != std::string::npos));
    if (name.find("rz") != std::string::npos) up = false;
    value = (below + (up ? 1 : 0)) * unit;
  }
  if (name.find("satfinite") != std::string::npos) value = std::min(value, 0x1.ffcp127);
  return std::bit_cast<std::uint32_t>(static_cast<float>(std::copysign(value, x)));
}

TEST(NarrowFormats, Tf32ConversionFollowsRoundingMode) {
  std::vector<InstructionCase> cases;
  std::vector<std::string> names = {"cvt.rna.tf32.f32", "cvt.rna.satfinite.tf32.f32"};
  for (const char* mode : {"rn", "rz"}) {
    for (const char* rest : {"", ".satfinite", ".relu", ".satfinite.relu"}) {
      names.push_back(std::string("cvt.") + mode + rest + ".tf32.f32");
    }
  }
  for (const std::string& name : names) {
    cases.push_back({name, 32, {32}, "", [=](U64 a, U64, U64) { return tf32(as_float(a), name); }});
  }
  std::vector<Inputs> inputs = float_inputs();
  for (std::uint32_t low : {0x0fffu, 0x1000u, 0x1001u, 0x2fffu, 0x3000u, 0x3001u}) {
    inputs.push_back({0x3f800000u | low, 0, 0});
    inputs.push_back({0xc0400000u | low, 0, 0});
  }
  check_instructions(cases, inputs);
}

// Packed integers -------------------------------------------------------------------------------

std::int64_t clamped(std::int64_t x, unsigned bits, bool is_signed) {
  const std::int64_t all = std::int64_t{1} << bits;
  const std::int64_t least = is_signed ? -all / 2 : 0;
  const std::int64_t most = is_signed ? all / 2 - 1 : all - 1;
  return x < least ? least : x > most ? most : x;
}

constexpr Inputs kWords[] = {
    {0, 0, 0},
    {0x01020304, 0x04030201, 0x11223344},
    {0x807fff01, 0x7f80ff02, 0xffffffff},
    {0xffffffff, 0x00000000, 1},
    {0x80008000, 0x7fff7fff, 0x80000000},
    {0xfedcba98, 0x76543210, 0x0f1e2d3c},
    {300, 0xfffffe00, 0xabcd1234},
    {40000, 0xffff63c0, 0x00010002},
};

TEST(PackedIntegers, CvtPackClampsAndPacks) {
  std::vector<InstructionCase> cases;
  for (const bool is_signed : {false, true}) {
    for (const unsigned width : {8u, 16u}) {
      const std::string name = std::string("cvt.pack.sat.") + (is_signed ? "s" : "u") +
                               std::to_string(width) + ".s32" + (width == 8 ? ".b32" : "");
      std::vector<unsigned> sources{32, 32};
      if (width == 8) sources.push_back(32);
      cases.push_back({name, 32, sources, "", [=](U64 a, U64 b, U64 c) {
                         const U64 mask = (U64{1} << width) - 1;
                         const auto one = [&](U64 x) {
                           return static_cast<U64>(
                                      clamped(static_cast<std::int32_t>(x), width, is_signed)) &
                                  mask;
                         };
                         return (width == 8 ? c << 16 : 0) | one(a) << width | one(b);
                       }});
    }
  }
  check_instructions(cases, kWords);
}

std::int64_t video_lane(const std::string& opcode, std::int64_t x, std::int64_t y) {
  if (opcode == "vadd") return x + y;
  if (opcode == "vsub") return x - y;
  if (opcode == "vmin") return std::min(x, y);
  if (opcode == "vmax") return std::max(x, y);
  if (opcode == "vabsdiff") return x > y ? x - y : y - x;
  const double half = static_cast<double>(x + y) / 2;  // vavrg
  return static_cast<std::int64_t>(half < 0 ? std::ceil(half - 0.5) : std::floor(half + 0.5));
}

std::int64_t lane_of(U64 word, unsigned index, unsigned bits, bool is_signed) {
  const U64 part = word >> (index * bits) & ((U64{1} << bits) - 1);
  const bool negative = is_signed && part >> (bits - 1) != 0;
  return static_cast<std::int64_t>(part) - (negative ? std::int64_t{1} << bits : 0);
}

TEST(VideoInstructions, LanesAreIndependent) {
  std::vector<InstructionCase> cases;
  for (const unsigned lanes : {2u, 4u}) {
    const unsigned bits = 32 / lanes;
    for (const char* opcode : {"vadd", "vsub", "vmin", "vmax", "vabsdiff", "vavrg"}) {
      for (int signs = 0; signs < 8; ++signs) {
        const auto type = [&](int bit) { return signs >> bit & 1 ? ".s32" : ".u32"; };
        for (const char* end : {"", ".sat", ".add"}) {
          const std::string name = opcode + std::to_string(lanes) + type(0) + type(1) + type(2);
          const std::string ending = end;
          cases.push_back({name + end, 32, {32, 32, 32}, "", [=](U64 a, U64 b, U64 c) {
                             U64 sum = ending == ".add" ? c : 0;
                             for (unsigned i = 0; i < lanes; ++i) {
                               std::int64_t one =
                                   video_lane(opcode, lane_of(a, i, bits, signs >> 1 & 1),
                                              lane_of(b, i, bits, signs >> 2 & 1));
                               if (ending == ".sat") one = clamped(one, bits, signs & 1);
                               const U64 low = static_cast<U64>(one) & ((U64{1} << bits) - 1);
                               sum += ending == ".add" ? static_cast<U64>(one) : low << i * bits;
                             }
                             return sum;
                           }});
        }
      }
    }
    cases.push_back({"vset" + std::to_string(lanes) + ".s32.u32.lt",
                     32,
                     {32, 32, 32},
                     "",
                     [=](U64 a, U64 b, U64) {
                       U64 sum = 0;
                       for (unsigned i = 0; i < lanes; ++i) {
                         const bool less = lane_of(a, i, bits, true) < lane_of(b, i, bits, false);
                         sum |= U64{less} << i * bits;
                       }
                       return sum;
                     }});
  }
  check_instructions(cases, kWords);
}

}  // namespace
}  // namespace gpurun::emulated
