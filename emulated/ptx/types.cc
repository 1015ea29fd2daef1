// Names of PTX types and state spaces.
#include "emulated/ptx/types.h"

namespace gpurun::emulated::ptx {
namespace {

struct NamedType {
  std::string_view name;
  Type type;
};

constexpr Type integer(TypeKind kind, std::uint16_t bits) {
  return {kind, FloatFormat::kNone, bits};
}
constexpr Type floating(FloatFormat format, std::uint16_t bits) {
  return {TypeKind::kFloat, format, bits};
}

constexpr NamedType kTypes[] = {
    {"b32", integer(TypeKind::kBits, 32)},          {"b64", integer(TypeKind::kBits, 64)},
    {"u32", integer(TypeKind::kUnsigned, 32)},      {"s32", integer(TypeKind::kSigned, 32)},
    {"u64", integer(TypeKind::kUnsigned, 64)},      {"s64", integer(TypeKind::kSigned, 64)},
    {"f32", floating(FloatFormat::kF32, 32)},       {"f64", floating(FloatFormat::kF64, 64)},
    {"pred", integer(TypeKind::kPredicate, 1)},     {"b8", integer(TypeKind::kBits, 8)},
    {"b16", integer(TypeKind::kBits, 16)},          {"b128", integer(TypeKind::kBits, 128)},
    {"u8", integer(TypeKind::kUnsigned, 8)},        {"u16", integer(TypeKind::kUnsigned, 16)},
    {"s8", integer(TypeKind::kSigned, 8)},          {"s16", integer(TypeKind::kSigned, 16)},
    {"f16", floating(FloatFormat::kF16, 16)},       {"f16x2", floating(FloatFormat::kF16x2, 32)},
    {"bf16", floating(FloatFormat::kBf16, 16)},     {"bf16x2", floating(FloatFormat::kBf16x2, 32)},
    {"f32x2", floating(FloatFormat::kF32x2, 64)},   {"texref", integer(TypeKind::kOpaque, 64)},
    {"samplerref", integer(TypeKind::kOpaque, 64)}, {"surfref", integer(TypeKind::kOpaque, 64)},
};

}  // namespace

Type parse_type(std::string_view name) {
  for (const NamedType& known : kTypes) {
    if (known.name == name) return known.type;
  }
  return {};
}

Space parse_space(std::string_view name) {
  name = name.substr(0, name.find(':'));
  if (name == "global") return Space::kGlobal;
  if (name == "shared") return Space::kShared;
  if (name == "local") return Space::kLocal;
  if (name == "param") return Space::kParam;
  if (name == "const") return Space::kConst;
  if (name == "reg") return Space::kRegister;
  return Space::kNone;
}

}  // namespace gpurun::emulated::ptx
