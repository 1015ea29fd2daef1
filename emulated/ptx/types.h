// Types: the scalar types and state spaces of PTX (PTX ISA, sections 5.1 and 5.2).
#pragma once

#include <cstdint>
#include <string_view>

namespace gpurun::emulated::ptx {

enum class TypeKind : std::uint8_t {
  kNone,
  kPredicate,
  kBits,
  kUnsigned,
  kSigned,
  kFloat,
  kOpaque
};

// Formats of kFloat types. Packed formats hold two values, the first in the low half.
enum class FloatFormat : std::uint8_t { kNone, kF16, kBf16, kF32, kF64, kF16x2, kBf16x2, kF32x2 };

struct Type {
  TypeKind kind = TypeKind::kNone;
  FloatFormat format = FloatFormat::kNone;
  std::uint16_t bits = 0;  // 1 for predicates.

  bool is_none() const { return kind == TypeKind::kNone; }
  bool is_float() const { return kind == TypeKind::kFloat; }
  bool is_signed() const { return kind == TypeKind::kSigned; }
  bool is_predicate() const { return kind == TypeKind::kPredicate; }
  bool is_packed() const { return format >= FloatFormat::kF16x2; }
  // Bytes in memory. Predicates take one.
  std::uint32_t bytes() const { return bits < 8 ? 1u : bits / 8u; }
  bool operator==(const Type&) const = default;
};

// The type with this name: "u32", "f16x2", "pred", "texref". A type of kind kNone for any other
// name.
Type parse_type(std::string_view name);

enum class Space : std::uint8_t { kNone, kRegister, kParam, kLocal, kShared, kGlobal, kConst };

// The space with this name: "global", "shared", also "shared::cta" and "param::entry". kNone for
// any other name. The shared memory of other blocks ("shared::cluster") is kShared, because a
// cluster is one block.
Space parse_space(std::string_view name);

}  // namespace gpurun::emulated::ptx
