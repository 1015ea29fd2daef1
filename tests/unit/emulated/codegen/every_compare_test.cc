// Comparisons and selections: every accepted variant of setp, set, selp and slct.
#include <gtest/gtest.h>

#include "reference.h"

namespace gpurun::emulated {
namespace {

using namespace test;

// The relations for which it is true: less, equal, greater, unordered.
struct Comparison {
  const char* name;
  bool less, equal, greater, unordered;
};
constexpr Comparison kComparisons[] = {
    {"eq", false, true, false, false}, {"ne", true, false, true, false},
    {"lt", true, false, false, false}, {"le", true, true, false, false},
    {"gt", false, false, true, false}, {"ge", false, true, true, false},
    {"lo", true, false, false, false}, {"ls", true, true, false, false},
    {"hi", false, false, true, false}, {"hs", false, true, true, false},
    {"equ", false, true, false, true}, {"neu", true, false, true, true},
    {"ltu", true, false, false, true}, {"leu", true, true, false, true},
    {"gtu", false, false, true, true}, {"geu", false, true, true, true},
    {"num", true, true, true, false},  {"nan", false, false, false, true},
};

// Whether lane `lane` of a and b compares so. `opposite` negates the comparison.
using Holds = std::function<bool(U64 a, U64 b, U64 c, unsigned lane, bool opposite)>;
Holds comparison(const Name& name) {
  const TypeFacts type = facts_of(name.types.back());
  const Comparison* known = nullptr;
  for (const Comparison& one : kComparisons) {
    if (name.parts[0] == one.name) known = &one;
  }
  const bool flush = name.has("ftz");
  const bool conjunction = name.has("and");
  const bool disjunction = name.has("or");
  const bool exclusive = name.has("xor");
  return [=](U64 a, U64 b, U64 c, unsigned lane, bool opposite) {
    a = low_bits(a >> (lane * type.lane_bits()), type.lane_bits());
    b = low_bits(b >> (lane * type.lane_bits()), type.lane_bits());
    const Wide x = number(type, flush ? flushed(type, a) : a);
    const Wide y = number(type, flush ? flushed(type, b) : b);
    bool result = is_nan(x) || is_nan(y) ? known->unordered
                  : x < y                ? known->less
                  : x > y                ? known->greater
                                         : known->equal;
    if (opposite) result = !result;
    const bool other = (c & 1) != 0;
    if (conjunction) return result && other;
    if (disjunction) return result || other;
    return exclusive ? result != other : result;
  };
}

// %c1 is the predicate to combine with.
std::vector<unsigned> sources(const Name& name) {
  const unsigned bits = facts_of(name.types.back()).bits;
  const bool combined = name.has("and") || name.has("or") || name.has("xor");
  return combined ? std::vector<unsigned>{bits, bits, 1} : std::vector<unsigned>{bits, bits};
}

TEST(InstructionVariants, SetpMatchesReference) {
  check_variants({"setp"}, [](const Name& name) {
    const auto holds = comparison(name);
    const TypeFacts type = facts_of(name.types.back());
    const bool packed = type.lanes == 2;
    if (type.bits == 16 && type.is_float()) {  // These return one predicate.
      return InstructionCase{"", 1, sources(name), "",
                             [=](U64 a, U64 b, U64 c) { return U64{holds(a, b, c, 0, false)}; }};
    }
    return InstructionCase{"", 2, sources(name), "", [=](U64 a, U64 b, U64 c) {
                             return U64{holds(a, b, c, 0, false)} |
                                    U64{holds(a, b, c, packed ? 1 : 0, !packed)} << 1;
                           }};
  });
}

TEST(InstructionVariants, SetMatchesReference) {
  check_variants({"set"}, [](const Name& name) {
    const auto holds = comparison(name);
    const TypeFacts result = facts_of(name.type());
    const unsigned lanes = facts_of(name.types.back()).lanes;
    const unsigned bits = result.bits / lanes;
    const U64 yes =
        result.is_float() ? rounded(result, {1, 0}, Mode::kNearest) : low_bits(~U64{0}, bits);
    return InstructionCase{"", result.bits, sources(name), "", [=](U64 a, U64 b, U64 c) {
                             U64 out = holds(a, b, c, 0, false) ? yes : 0;
                             if (lanes == 2 && holds(a, b, c, 1, false)) out |= yes << bits;
                             return out;
                           }};
  });
}

TEST(InstructionVariants, SelpAndSlctMatchReference) {
  check_variants({"selp", "slct"}, [](const Name& name) {
    const unsigned bits = facts_of(name.type()).bits;
    if (name.opcode == "selp") {
      return InstructionCase{
          "", bits, {bits, bits, 1}, "", [](U64 a, U64 b, U64 c) { return (c & 1) != 0 ? a : b; }};
    }
    const TypeFacts by = facts_of(name.types.back());
    const bool flush = name.has("ftz");
    return InstructionCase{"", bits, {bits, bits, 32}, "", [=](U64 a, U64 b, U64 c) {
                             const Wide value =
                                 number(by, flush ? flushed(by, low_bits(c, 32)) : c);
                             return value >= 0 ? a : b;
                           }};
  });
}

}  // namespace
}  // namespace gpurun::emulated
