// Surface instructions (PTX ISA, section 9.7.11): unformatted loads and stores and suq, by surface
// objects. runtime/surface_functions.h does the work.
#include "emulated/runtime/surface_functions.h"

#include "emulated/codegen/function_builder.h"
#include "emulated/codegen/object_access.h"
#include "emulated/codegen/variant_table.h"

namespace gpurun::emulated {

namespace {

using llvm::Value;

unsigned vector_length(const Operation& op) { return op.has("v4") ? 4 : op.has("v2") ? 2 : 1; }

SurfaceOperation operation_of(const Operation& op) {
  SurfaceOperation out;
  out.layered = op.has("a1d") || op.has("a2d");
  out.dimensions = op.has("1d") || op.has("a1d") ? 1 : op.has("3d") ? 3 : 2;
  if (op.has("clamp")) out.outside = OutsideSurface::kClamp;
  if (op.has("zero")) out.outside = OutsideSurface::kZero;
  out.bytes = static_cast<std::uint8_t>(vector_length(op) * op.type.bytes());
  return out;
}

void emit_suld(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 2);
  const SurfaceOperation operation = operation_of(op);
  ObjectAccess access(b, op, 1, kSurfaceInputWords);
  access.store_place(0, operation.dimensions, operation.layered);
  if (b.failed()) return;
  Value* out = b.stack_slot(llvm::ArrayType::get(b.int_type(8), kSurfaceBytesMax));
  access.call("gpurun_surface_load", {b.constant(32, operation.packed()), access.words(), out});
  write_words(b, b.operand(op, 0), out, vector_length(op), op.type.bits);
}

void emit_sust(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 2);
  const SurfaceOperation operation = operation_of(op);
  ObjectAccess access(b, op, 0, kSurfaceInputWords);
  access.store_place(0, operation.dimensions, operation.layered);
  if (b.failed()) return;
  Value* in = b.stack_slot(llvm::ArrayType::get(b.int_type(8), kSurfaceBytesMax));
  for (unsigned i = 0; i < vector_length(op); ++i) {
    Value* part = b.read(vector_part(b, b.operand(op, 1), vector_length(op), i), op.type.bits);
    if (b.failed()) return;
    b.ir.CreateAlignedStore(part, b.ir.CreateConstGEP1_64(b.int_type(op.type.bits), in, i),
                            llvm::Align(1));
  }
  access.call("gpurun_surface_store", {b.constant(32, operation.packed()), access.words(), in});
}

void emit_suq(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 2);
  SurfaceQuery query = SurfaceQuery::kWidth;
  if (op.has("height")) query = SurfaceQuery::kHeight;
  if (op.has("depth")) query = SurfaceQuery::kDepth;
  if (op.has("array_size")) query = SurfaceQuery::kLayers;
  ObjectAccess access(b, op, 1, 0);
  if (b.failed()) return;
  Value* out = b.stack_slot(b.int_type(32));
  access.call("gpurun_surface_query", {b.constant(32, static_cast<std::uint32_t>(query)), out});
  write_words(b, b.operand(op, 0), out, 1, 32);
}

constexpr VariantRow kSurfaceRows[] = {
    {"suld.b.{1d,2d,3d,a1d,a2d}{,.v2,.v4}.{b8,b16,b32}.{trap,clamp,zero}", emit_suld},
    {"suld.b.{1d,2d,3d,a1d,a2d}{,.v2}.b64.{trap,clamp,zero}", emit_suld},
    {"sust.b.{1d,2d,3d,a1d,a2d}{,.v2,.v4}.{b8,b16,b32}.{trap,clamp,zero}", emit_sust},
    {"sust.b.{1d,2d,3d,a1d,a2d}{,.v2}.b64.{trap,clamp,zero}", emit_sust},
    {"suq.{width,height,depth,array_size}.b32", emit_suq},
};

}  // namespace

std::span<const VariantRow> surface_rows() { return kSurfaceRows; }

}  // namespace gpurun::emulated
