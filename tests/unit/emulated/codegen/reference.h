// Reference: the meaning of PTX types and the rounding of results, on the host. Arithmetic is exact
// in 113 bits, with the sign of the remainder, and rounded once. It shares nothing with the
// translator.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernel_harness.h"

namespace gpurun::emulated::test {

using U64 = std::uint64_t;
using Wide = __float128;

// A type by its name: "u16", "b64", "f16x2", "e4m3x2", "pred".
struct TypeFacts {
  char kind = 'b';    // 'u', 's', 'b', 'f' or 'p'
  unsigned bits = 0;  // Of all lanes.
  unsigned lanes = 1;
  int precision = 0;   // Of floats: bits of the significand, with the leading one.
  int least = 0;       // Exponent of the smallest normal number.
  int most = 0;        // Exponent of the largest number.
  std::string scalar;  // "f16" of "f16x2"

  unsigned lane_bits() const { return bits / lanes; }
  bool is_float() const { return kind == 'f'; }
};
TypeFacts facts_of(std::string_view type);
bool is_type(std::string_view name);

enum class Mode { kNearest, kZero, kDown, kUp };

// `value` plus a nonzero amount of `error`'s sign, smaller than every bit of `value` (0: exact).
struct Exact {
  Wide value = 0;
  int error = 0;
};
bool is_nan(Wide value);
bool is_infinite(Wide value);
Exact sum(Wide a, Wide b);
Exact product(Wide a, Wide b);  // Of values with at most 53 bits.
Exact quotient(Wide a, Wide b);
Exact square_root(Wide a);
Exact fused(Wide a, Wide b, Wide c);

// The number that the bits of one lane represent, integer or float.
Wide number(const TypeFacts& type, U64 bits);
// The nearest float of the type in that mode. Overflow is as in IEEE 754.
U64 rounded(const TypeFacts& type, Exact exact, Mode mode);
// Replaces a subnormal by zero with its sign.
U64 flushed(const TypeFacts& type, U64 bits);
bool negative(const TypeFacts& type, U64 bits);
U64 low_bits(U64 value, unsigned bits);
U64 not_a_number(const TypeFacts& type);

// An instruction's name in parts.
struct Name {
  explicit Name(const std::string& full);
  bool has(std::string_view part) const;
  Mode mode() const;  // .rz, .rm or .rp, otherwise nearest.
  const std::string& type(std::size_t index = 0) const { return types.at(index); }

  std::string full;
  std::string opcode;
  std::vector<std::string> parts;
  std::vector<std::string> types;  // In order, with the destination first.
};

// Every accepted variant of an opcode.
std::vector<std::string> variants_of(std::string_view opcode);

// Operands at the edges of every type, and random ones.
const std::vector<Inputs>& all_inputs();

// Executes and compares one case for each accepted variant of the opcodes for which `make` returns
// one. Fails when there is no such variant.
template <class Make>
void check_variants(std::initializer_list<std::string_view> opcodes, Make make) {
  std::vector<InstructionCase> cases;
  for (std::string_view opcode : opcodes) {
    for (const std::string& variant : variants_of(opcode)) {
      InstructionCase one = make(Name(variant));
      if (one.expected == nullptr) continue;
      one.name = variant;
      cases.push_back(std::move(one));
    }
  }
  check_instructions(cases, all_inputs());
}

}  // namespace gpurun::emulated::test
