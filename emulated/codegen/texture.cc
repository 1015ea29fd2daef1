// Texture instructions (PTX ISA, section 9.7.10): tex, tld4 and txq in unified mode, by texture
// objects. runtime/texture_functions.h does the work.
#include "emulated/runtime/texture_functions.h"

#include <algorithm>

#include "emulated/codegen/function_builder.h"
#include "emulated/codegen/object_access.h"
#include "emulated/codegen/variant_table.h"

namespace gpurun::emulated {
namespace {

using llvm::Value;

TextureOperation operation_of(const Operation& op) {
  TextureOperation out;
  out.layered = op.has("a1d") || op.has("a2d") || op.has("acube");
  out.cube = op.has("cube") || op.has("acube");
  out.dimensions = op.has("1d") || op.has("a1d") ? 1 : op.has("3d") || out.cube ? 3 : 2;
  out.half = op.first_type.format == ptx::FloatFormat::kF16x2;
  out.indexed = op.type.is_signed();
  if (op.has("level")) out.level = LevelMode::kLevel;
  if (op.has("grad")) out.level = LevelMode::kGradient;
  const std::string_view components = "rgba";
  for (std::size_t i = 0; i < components.size(); ++i) {
    if (op.has(components.substr(i, 1))) out.component = static_cast<std::uint8_t>(i);
  }
  return out;
}

void emit_tex(FunctionBuilder& b, const Operation& op) {
  const TextureOperation operation = operation_of(op);
  const std::size_t operands = operation.level == LevelMode::kBase    ? 2
                               : operation.level == LevelMode::kLevel ? 3
                                                                      : 4;
  b.expect_operands(op, operands, operands);
  ObjectAccess access(b, op, 1, kTextureInputWords);
  access.store_place(kTextureLayer, operation.dimensions, operation.layered);
  if (operation.level == LevelMode::kLevel) {
    access.store(kTextureLevel, b.read(b.operand(op, 2), 32));
  }
  for (unsigned side = 0; side < 2 && operation.level == LevelMode::kGradient; ++side) {
    const ptx::Operand& gradient = b.operand(op, 2 + side);
    for (unsigned i = 0; i < operation.dimensions; ++i) {
      access.store(kTextureLevel + 3 * side + i,
                   b.read(vector_part(b, gradient, operation.dimensions, i), 32));
    }
  }
  if (b.failed()) return;
  const unsigned words = operation.half ? 2 : 4;
  Value* out = b.stack_slot(llvm::ArrayType::get(b.int_type(32), words));
  access.call("gpurun_texture_fetch", {b.constant(32, operation.packed()), access.words(), out});
  write_words(b, b.operand(op, 0), out, words, 32);
}

void emit_tld4(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 2);
  const TextureOperation operation = operation_of(op);
  ObjectAccess access(b, op, 1, kTextureInputWords);
  access.store_place(kTextureLayer, operation.dimensions, operation.layered);
  if (b.failed()) return;
  Value* out = b.stack_slot(llvm::ArrayType::get(b.int_type(32), 4));
  access.call("gpurun_texture_gather", {b.constant(32, operation.packed()), access.words(), out});
  write_words(b, b.operand(op, 0), out, 4, 32);
}

void emit_txq(FunctionBuilder& b, const Operation& op) {
  const bool level = op.has("level");
  b.expect_operands(op, level ? 3 : 2, level ? 3 : 2);
  TextureQuery query = TextureQuery::kWidth;
  if (op.has("height")) query = TextureQuery::kHeight;
  if (op.has("depth")) query = TextureQuery::kDepth;
  if (op.has("array_size")) query = TextureQuery::kLayers;
  if (op.has("num_mipmap_levels")) query = TextureQuery::kLevels;
  if (op.has("normalized_coords")) query = TextureQuery::kNormalized;
  ObjectAccess access(b, op, 1, 0);
  Value* wanted = level ? b.read(b.operand(op, 2), 32) : b.constant(32, 0);
  if (b.failed()) return;
  Value* out = b.stack_slot(b.int_type(32));
  access.call("gpurun_texture_query",
              {b.constant(32, static_cast<std::uint32_t>(query)), wanted, out});
  write_words(b, b.operand(op, 0), out, 1, 32);
}

constexpr VariantRow kTextureRows[] = {
    {"tex{,.base}.{1d,2d,3d,a1d,a2d}.v4.{u32,s32,f32}.{s32,f32}", emit_tex},
    {"tex.{cube,acube}.v4.{u32,s32,f32}.f32", emit_tex},
    {"tex.level.{1d,2d,3d,a1d,a2d}.v4.{u32,s32,f32}.{s32,f32}", emit_tex},
    {"tex.level.{cube,acube}.v4.{u32,s32,f32}.f32", emit_tex},
    {"tex.grad.{1d,2d,3d,a1d,a2d}.v4.{u32,s32,f32}.f32", emit_tex},
    {"tex{,.level}.{1d,2d,3d,a1d,a2d}.v2.f16x2.{s32,f32}", emit_tex},
    {"tex{,.level}.{cube,acube}.v2.f16x2.f32", emit_tex},
    {"tex.grad.{1d,2d,3d,a1d,a2d}.v2.f16x2.f32", emit_tex},
    {"tld4.{r,g,b,a}.{2d,a2d,cube,acube}.v4.{u32,s32,f32}.f32", emit_tld4},
    {"txq.{width,height,depth,array_size,num_mipmap_levels,normalized_coords}.b32", emit_txq},
    {"txq.level.{width,height,depth}.b32", emit_txq},
};

}  // namespace

std::span<const VariantRow> texture_rows() { return kTextureRows; }

}  // namespace gpurun::emulated
