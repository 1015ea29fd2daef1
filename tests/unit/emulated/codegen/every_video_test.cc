// SIMD video instructions: every accepted variant, on halves and on bytes.
#include <gtest/gtest.h>

#include <algorithm>

#include "reference.h"

namespace gpurun::emulated {
namespace {

using namespace test;

int part(U64 word, unsigned index, unsigned bits, bool is_signed) {
  const auto value = static_cast<int>(low_bits(word >> (index * bits), bits));
  return is_signed && value >= 1 << (bits - 1) ? value - (1 << bits) : value;
}

int combined(const Name& name, const std::string& operation, int x, int y) {
  if (operation == "add") return x + y;
  if (operation == "sub") return x - y;
  if (operation == "min") return std::min(x, y);
  if (operation == "max") return std::max(x, y);
  if (operation == "absdiff") return std::abs(x - y);
  if (operation == "avrg") {  // Halves away from zero.
    const int sum = x + y;
    return sum < 0 ? -(-sum / 2 + (-sum % 2)) : sum / 2 + sum % 2;
  }
  if (name.has("eq")) return x == y;
  if (name.has("ne")) return x != y;
  if (name.has("lt")) return x < y;
  if (name.has("le")) return x <= y;
  return name.has("gt") ? x > y : x >= y;
}

TEST(InstructionVariants, VideoInstructionsMatchReference) {
  check_variants({"vadd2", "vsub2", "vavrg2", "vabsdiff2", "vmin2", "vmax2", "vset2", "vadd4",
                  "vsub4", "vavrg4", "vabsdiff4", "vmin4", "vmax4", "vset4"},
                 [](const Name& name) {
                   const unsigned lanes = name.opcode.back() == '4' ? 4 : 2;
                   const std::string operation = name.opcode.substr(1, name.opcode.size() - 2);
                   const bool compares = operation == "set";  // Its types are the operands' types.
                   const bool a_signed = name.type(compares ? 0 : 1) == "s32";
                   const bool b_signed = name.type(compares ? 1 : 2) == "s32";
                   const bool d_signed = !compares && name.type(0) == "s32";
                   return InstructionCase{
                       "", 32, {32, 32, 32}, "", [=](U64 a, U64 b, U64 c) {
                         const unsigned bits = 32 / lanes;
                         const int all = 1 << bits;
                         U64 packed = 0;
                         U64 total = c;
                         for (unsigned i = 0; i < lanes; ++i) {
                           int value = combined(name, operation, part(a, i, bits, a_signed),
                                                part(b, i, bits, b_signed));
                           if (name.has("sat")) {
                             value = d_signed ? std::clamp(value, -all / 2, all / 2 - 1)
                                              : std::clamp(value, 0, all - 1);
                           }
                           packed |= low_bits(static_cast<U64>(value), bits) << (i * bits);
                           total += static_cast<U64>(static_cast<std::int64_t>(value));
                         }
                         return name.has("add") ? total : packed;
                       }};
                 });
}

// An unsigned word fits into 64 bits without loss. A signed word shifts as the definition says.
std::int64_t shifted(const Name& name, U64 word, U64 by) {
  const U64 distance = name.has("clamp") ? std::min<U64>(by, 32) : by % 32;
  std::int64_t value = static_cast<std::int64_t>(word);
  if (name.type(1) == "s32" && word >= U64{1} << 31) value -= std::int64_t{1} << 32;
  const std::int64_t factor = std::int64_t{1} << distance;
  if (name.opcode == "vshl") {
    return static_cast<std::int64_t>(static_cast<U64>(value) * static_cast<U64>(factor));
  }
  // Towards minus infinity.
  return value / factor - (value % factor < 0 ? 1 : 0);
}

TEST(InstructionVariants, VideoShiftsMatchReference) {
  check_variants({"vshl", "vshr"}, [](const Name& name) {
    const bool d_signed = name.type(0) == "s32";
    const auto as_result = [=](U64 word) {
      const auto value = static_cast<std::int64_t>(low_bits(word, 32));
      return d_signed && value >= std::int64_t{1} << 31 ? value - (std::int64_t{1} << 32) : value;
    };
    const bool secondary = name.has("add") || name.has("min") || name.has("max");
    const std::vector<unsigned> operands(secondary ? 3 : 2, 32);
    return InstructionCase{"", 32, operands, "", [=](U64 a, U64 b, U64 c) {
                             std::int64_t value = shifted(name, low_bits(a, 32), low_bits(b, 32));
                             if (name.has("sat")) {
                               value = d_signed
                                           ? std::clamp<std::int64_t>(value, INT32_MIN, INT32_MAX)
                                           : std::clamp<std::int64_t>(value, 0, UINT32_MAX);
                             }
                             value = as_result(static_cast<U64>(value));
                             const std::int64_t third = as_result(c);
                             if (name.has("min")) value = std::min(value, third);
                             if (name.has("max")) value = std::max(value, third);
                             return static_cast<U64>(name.has("add") ? value + third : value);
                           }};
  });
}

}  // namespace
}  // namespace gpurun::emulated
