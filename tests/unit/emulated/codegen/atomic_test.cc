// atom and red: the value before and the value after, in shared and global memory and through
// generic addresses. No update is lost when many threads and blocks use one address.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernel_harness.h"
#include "reference.h"

namespace gpurun::emulated {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;
using Pair = std::pair<U64, U64>;
using Cases = std::vector<ThreadCase>;

const std::vector<Inputs>& inputs() {
  static const auto* all = new std::vector<Inputs>{
      {0, 0, 1},
      {1, 2, 3},
      {5, 5, 9},
      {~0ull, 1, 1},
      {7, 6, 2},
      {0x8000000080008000ull, 0x7fffffff7fffffffull, 4},
      {0x7fffffff7fffffffull, 1, 0x7fffffff7fffffffull},
      {0x3ff8000000000000ull | 0x3fc00000, 0xbfd0000000000000ull | 0x40490fdb, 0},
      {0x3c003e013c003f80ull, 0x4248c0003f9a4040ull, 0},
      {0x0123456789abcdefull, 0xfedcba9876543210ull, 0x0123456789abcdefull},
  };
  return *all;
}

U64 low(U64 value, unsigned bits) { return bits >= 64 ? value : value & ((U64{1} << bits) - 1); }
std::int64_t as_signed(U64 value, unsigned bits) {
  return static_cast<std::int64_t>(value << (64 - bits)) >> (64 - bits);
}

struct Place {
  const char* space;
  const char* address;
  const char* before;  // Makes %u0 the generic address of the shared cell.
};
constexpr Place kPlaces[] = {
    {".global", "%cell", ""},
    {"", "%cell", ""},
    {".shared", "%own", ""},
    {"", "%u0", "cvt.u64.u32 %u0, %own; cvta.shared.u64 %u0, %u0;\n"},
};

// The cell holds a, the operands are b (and c). d is the result of atom, e the cell's new value.
template <class F>
void add_atomic(Cases& cases, const std::string& tail, unsigned bits, bool is_cas, F after,
                bool has_red = true) {
  const std::string width = std::to_string(bits);
  for (const Place& place : kPlaces) {
    const std::string cell = std::string("[") + place.address + "]";
    const std::string set = place.before + ("st" + std::string(place.space)) + ".b" + width + " " +
                            cell + ", %a" + width + ";\n";
    const std::string operands =
        cell + ", %b" + width + (is_cas ? ", %c" + width : std::string()) + ";\n";
    const std::string get =
        std::string("ld") + place.space + ".b" + width + " %e" + width + ", " + cell + ";";
    for (const std::string order :
         {"", ".relaxed.gpu", ".acquire.cta", ".release.sys", ".acq_rel.gpu"}) {
      cases.push_back(
          {set + "atom" + order + place.space + tail + " %d" + width + ", " + operands + get, bits,
           [=](unsigned thread) {
             const Inputs& in = inputs()[thread];
             return Pair{in.a, after(low(in.a, bits), low(in.b, bits), in.c)};
           }});
      if (!has_red || order == ".acquire.cta" || order == ".acq_rel.gpu") continue;
      cases.push_back({set + "red" + order + place.space + tail + " " + operands + get, bits,
                       [=](unsigned thread) {
                         const Inputs& in = inputs()[thread];
                         return Pair{0, after(low(in.a, bits), low(in.b, bits), in.c)};
                       }});
    }
  }
}

TEST(AtomicInstructions, IntegerOperationsMatchHost) {
  Cases cases;
  for (unsigned bits : {32u, 64u}) {
    const std::string width = std::to_string(bits);
    add_atomic(cases, ".and.b" + width, bits, false, [](U64 a, U64 b, U64) { return a & b; });
    add_atomic(cases, ".or.b" + width, bits, false, [](U64 a, U64 b, U64) { return a | b; });
    add_atomic(cases, ".xor.b" + width, bits, false, [](U64 a, U64 b, U64) { return a ^ b; });
    add_atomic(
        cases, ".exch.b" + width, bits, false, [](U64, U64 b, U64) { return b; }, false);
    add_atomic(cases, ".add.u" + width, bits, false, [](U64 a, U64 b, U64) { return a + b; });
    add_atomic(cases, ".min.u" + width, bits, false,
               [](U64 a, U64 b, U64) { return std::min(a, b); });
    add_atomic(cases, ".max.u" + width, bits, false,
               [](U64 a, U64 b, U64) { return std::max(a, b); });
    add_atomic(cases, ".min.s" + width, bits, false,
               [=](U64 a, U64 b, U64) { return as_signed(a, bits) < as_signed(b, bits) ? a : b; });
    add_atomic(cases, ".max.s" + width, bits, false,
               [=](U64 a, U64 b, U64) { return as_signed(a, bits) > as_signed(b, bits) ? a : b; });
  }
  add_atomic(cases, ".add.s32", 32, false, [](U64 a, U64 b, U64) { return a + b; });
  add_atomic(cases, ".inc.u32", 32, false, [](U64 a, U64 b, U64) { return a >= b ? 0 : a + 1; });
  add_atomic(cases, ".dec.u32", 32, false,
             [](U64 a, U64 b, U64) { return a == 0 || a > b ? b : a - 1; });
  check_threads(cases, inputs());
}

TEST(AtomicInstructions, CompareAndSwapReplacesOnlyExpectedValue) {
  Cases cases;
  for (unsigned bits : {16u, 32u, 64u}) {
    add_atomic(
        cases, ".cas.b" + std::to_string(bits), bits, true,
        [](U64 a, U64 b, U64 c) { return a == b ? c : a; }, false);
  }
  check_threads(cases, inputs());
}

// The cell holds (a, b). It is compared with (a, b), or with (a, a), and becomes (c, a).
TEST(AtomicInstructions, WideOperationsMoveSixteenBytes) {
  Cases cases;
  for (const Place& place : kPlaces) {
    for (const std::string order :
         {"", ".relaxed.sys", ".acquire.cta", ".release.sys", ".acq_rel.gpu"}) {
      const std::string cell = std::string("[") + place.address + "]";
      const std::string space = place.space;
      const std::string begin = std::string("{ .reg .b128 %wide<4>; ") + place.before + "st" +
                                space + ".v2.b64 " + cell +
                                ", {%a64, %b64}; mov.b128 %wide0, {%a64, %b64};\n"
                                "mov.b128 %wide1, {%a64, %a64}; mov.b128 %wide2, {%c64, %a64};\n";
      const std::string old = "; mov.b128 {%d64, %u1}, %wide3; ";
      const std::string high = "mov.b64 %e64, %u1; }";
      const std::string get = "ld" + space + ".v2.b64 {%d64, %e64}, " + cell + "; }";
      const std::string cas = "atom" + order + space + ".cas.b128 %wide3, " + cell;
      const std::string exchange = "atom" + order + space + ".exch.b128 %wide3, " + cell;
      const auto before = [](unsigned thread) {
        return Pair{inputs()[thread].a, inputs()[thread].b};
      };
      const auto after = [](unsigned thread) {
        return Pair{inputs()[thread].c, inputs()[thread].a};
      };
      const auto after_if_equal = [=](unsigned thread) {
        return inputs()[thread].a == inputs()[thread].b ? after(thread) : before(thread);
      };
      cases.push_back({begin + cas + ", %wide0, %wide2" + old + high, 64, before});
      cases.push_back({begin + cas + ", %wide0, %wide2" + old + get, 64, after});
      cases.push_back({begin + cas + ", %wide1, %wide2" + old + high, 64, before});
      cases.push_back({begin + cas + ", %wide1, %wide2" + old + get, 64, after_if_equal});
      cases.push_back({begin + exchange + ", %wide2" + old + high, 64, before});
      cases.push_back({begin + exchange + ", %wide2" + old + get, 64, after});
    }
  }
  check_threads(cases, inputs());
}

U64 half_sum(U64 a, U64 b) {
  const auto value = [](U64 v) { return std::bit_cast<_Float16>(static_cast<std::uint16_t>(v)); };
  return std::bit_cast<std::uint16_t>(static_cast<_Float16>(double(value(a)) + double(value(b))));
}
U64 bf16_sum(U64 a, U64 b) {
  const auto value = [](U64 v) { return std::bit_cast<float>(static_cast<U32>(v << 16)); };
  // The sum is exact in a double for these inputs. It is rounded once, to 8 bits of mantissa.
  const double sum = double(value(a & 0xffff)) + double(value(b & 0xffff));
  if (std::isnan(sum)) return 0x7fff;
  int exponent = 0;
  const double mantissa = std::frexp(sum, &exponent);
  const auto nearest =
      static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(mantissa, 8)), exponent - 8));
  return std::bit_cast<U32>(nearest) >> 16;
}

TEST(AtomicInstructions, FloatAddRoundsToItsFormat) {
  Cases cases;
  add_atomic(cases, ".add.f32", 32, false, [](U64 a, U64 b, U64) {
    return U64{std::bit_cast<U32>(std::bit_cast<float>(U32(a)) + std::bit_cast<float>(U32(b)))};
  });
  add_atomic(cases, ".add.f64", 64, false, [](U64 a, U64 b, U64) {
    return std::bit_cast<U64>(std::bit_cast<double>(a) + std::bit_cast<double>(b));
  });
  add_atomic(cases, ".add.noftz.f16", 16, false, [](U64 a, U64 b, U64) { return half_sum(a, b); });
  add_atomic(cases, ".add.noftz.f16x2", 32, false,
             [](U64 a, U64 b, U64) { return half_sum(a, b) | half_sum(a >> 16, b >> 16) << 16; });
  add_atomic(cases, ".add.noftz.bf16", 16, false, [](U64 a, U64 b, U64) { return bf16_sum(a, b); });
  add_atomic(cases, ".add.noftz.bf16x2", 32, false,
             [](U64 a, U64 b, U64) { return bf16_sum(a, b) | bf16_sum(a >> 16, b >> 16) << 16; });
  check_threads(cases, inputs());
}

// Vectors of floats in 16 bytes of a thread's cell. d and e are the new values, or the old ones.
TEST(AtomicInstructions, VectorOperationsUpdateEachElement) {
  using namespace test;
  // Numbers in all 16-bit formats and in f32.
  std::vector<Inputs> numbers;
  for (U64 i = 0; i < 16; ++i) {
    numbers.push_back({0x3c003e003f003f80 + i * 0x0010001000100010, 0x41004180c2003d00 - i, 0});
  }
  std::vector<ThreadCase> cases;
  for (const std::string opcode : {"atom", "red"}) {
    for (const std::string& variant : variants_of(opcode)) {
      const Name name(variant);
      const unsigned count = name.has("v8") ? 8 : name.has("v4") ? 4 : name.has("v2") ? 2 : 0;
      if (count == 0) continue;
      const TypeFacts type = facts_of(name.types.back());
      const unsigned lanes = count * type.lanes;
      const std::string bits = std::to_string(type.bits);
      const std::string registers = type.bits == 16 ? "v" : "t";
      std::string sources, results, load;
      for (unsigned i = 0; i < count; ++i) {
        const std::string at = registers + std::to_string(i);
        sources += (i == 0 ? "%" : ", %") + at;
        load += "ld.b" + bits + " %" + at + ", [%own_values+" + std::to_string(i * type.bits / 8) +
                "];\n";
      }
      // The operands are b, twice. The cell holds a, twice.
      std::string text =
          "st.shared.v2.b64 [%own], {%b64, %b64}; st.v2.b64 [%cell], {%a64, %a64};\n";
      for (std::size_t at = 0; (at = load.find("[%own_values")) != std::string::npos;) {
        load.replace(at, 12, "[%own");
      }
      for (std::size_t at = 0; (at = load.find("ld.b", at)) != std::string::npos; at += 10) {
        load.replace(at, 4, "ld.shared.b");
      }
      std::string written = variant;
      for (const std::string order : {".relaxed", ".acquire", ".release", ".acq_rel"}) {
        if (const auto at = written.find(order); at != std::string::npos) {
          written.insert(at + order.size(), ".gpu");
        }
      }
      text += load + written + " " + (opcode == "atom" ? "{" + sources + "}, " : "") +
              "[%cell], {" + sources + "};\n";
      if (opcode == "atom") {  // The result of atom goes to shared memory, from where the test
                               // reads it as e.
        text += "st.shared.v2.b64 [%own], {%a64, %a64};\n";
        for (unsigned i = 0; i < count; ++i) {
          text += "st.shared.b" + bits + " [%own+" + std::to_string(i * type.bits / 8) + "], %" +
                  registers + std::to_string(i) + ";\n";
        }
        text += "ld.shared.b64 %e64, [%own];\n";
      }
      text += "ld.b64 %d64, [%cell];";
      cases.push_back({text, 64, [=](unsigned thread) {
                         const unsigned width = type.lane_bits();
                         U64 after = numbers[thread].a;
                         for (unsigned i = 0; i < lanes && (i + 1) * width <= 64; ++i) {
                           const U64 x = low_bits(numbers[thread].a >> (i * width), width);
                           const U64 y = low_bits(numbers[thread].b >> (i * width), width);
                           const Wide a = number(type, x);
                           const Wide b = number(type, y);
                           U64 one = rounded(type, sum(a, b), Mode::kNearest);
                           if (name.has("min")) one = a < b ? x : y;
                           if (name.has("max")) one = a < b ? y : x;
                           const U64 mask = (width == 64 ? ~U64{0} : (U64{1} << width) - 1)
                                            << (i * width);
                           after = (after & ~mask) | one << (i * width);
                         }
                         return Pair{after, opcode == "atom" ? numbers[thread].a : 0};
                       }});
    }
  }
  check_threads(cases, numbers);
}

constexpr char kHead[] = ".version 9.0\n.target sm_120\n.address_size 64\n";

// One address, 8 blocks of 128 threads, 10 rounds each.
void check_contended(const std::string& type, unsigned bytes, const std::string& one,
                     U64 expected) {
  const std::string bits = std::to_string(bytes * 8);
  const std::string text = std::string(kHead) + ".entry k(.param .u64 in, .param .u64 out) {\n" +
                           ".reg .b64 %out; .reg .b32 %n; .reg .pred %p; .reg .b" + bits +
                           " %one;\nld.param.u64 %out, [out]; mov.b" + bits + " %one, " + one +
                           "; mov.u32 %n, 10;\n$again: red.global.add" + type +
                           " [%out], %one; sub.u32 %n, %n, 1; setp.ne.u32 %p, %n, 0;\n"
                           "@%p bra $again; ret; }\n";
  U64 out = 0;
  const Status status = run_grid(text, {8, 128}, nullptr, &out);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(out, expected) << type;
}

TEST(AtomicInstructions, ContendedUpdatesFromBlocksAllCount) {
  check_contended(".u32", 4, "1", 10240);
  check_contended(".u64", 8, "1", 10240);
  check_contended(".f32", 4, "0x3f800000", std::bit_cast<U32>(10240.0f));
  check_contended(".f64", 8, "0x3ff0000000000000", std::bit_cast<U64>(10240.0));
  // Steps of 2^-6 stop at 32. There a step is half a unit, which rounds to even.
  check_contended(".noftz.f16x2", 4, "0x24000000", 0x50000000);
}

// A spin lock with compare-and-swap and exchange, taken by every thread of all blocks.
TEST(AtomicInstructions, SpinLockProtectsCounter) {
  const std::string text = std::string(kHead) + R"(
.entry k(.param .u64 in, .param .u64 out) {
  .reg .b64 %out; .reg .b32 %r<4>; .reg .pred %p;
  ld.param.u64 %out, [out];
$take:
  atom.acquire.gpu.global.cas.b32 %r0, [%out], 0, 1;
  setp.ne.u32 %p, %r0, 0;
  @%p bra $take;
  ld.global.u32 %r1, [%out+4];
  add.u32 %r1, %r1, 1;
  st.global.u32 [%out+4], %r1;
  atom.global.exch.b32 %r0, [%out], 0;
  ret;
})";
  U32 out[2] = {0, 0};
  const Status status = run_grid(text, {4, 64}, nullptr, out);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(out[0], 0u);
  EXPECT_EQ(out[1], 256u);
}

}  // namespace
}  // namespace gpurun::emulated
