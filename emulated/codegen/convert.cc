// cvt: between integers, floats and the packed 16-bit formats (PTX ISA, section 9.7.9).
#include <string>

#include "emulated/codegen/float_math.h"
#include "emulated/codegen/variant_table.h"

namespace gpurun::emulated {
namespace {

using llvm::Value;
using ptx::FloatFormat;
namespace Intrinsic = llvm::Intrinsic;

bool is_f32(const ptx::Type& type) { return type.format == FloatFormat::kF32; }

// Clamps `x` of the source type to what the destination can hold.
Value* clamp_integer(FunctionBuilder& b, Value* x, const ptx::Type& from, const ptx::Type& to) {
  const unsigned wide = 65;  // Holds every signed and unsigned 64-bit value.
  llvm::IntegerType* type = b.int_type(wide);
  x = from.is_signed() ? b.ir.CreateSExt(x, type) : b.ir.CreateZExt(x, type);
  llvm::APInt low =
      to.is_signed() ? llvm::APInt::getSignedMinValue(to.bits).sext(wide) : llvm::APInt(wide, 0);
  llvm::APInt high = to.is_signed() ? llvm::APInt::getSignedMaxValue(to.bits).zext(wide)
                                    : llvm::APInt::getMaxValue(to.bits).zext(wide);
  x = b.binary(Intrinsic::smax, x, llvm::ConstantInt::get(b.context(), low));
  x = b.binary(Intrinsic::smin, x, llvm::ConstantInt::get(b.context(), high));
  return b.ir.CreateTrunc(x, b.int_type(to.bits));
}

void emit_integer_to_integer(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 2);
  const ptx::Type& to = op.first_type;
  Value* x = b.read(b.operand(op, 1), op.type.bits);
  llvm::IntegerType* type = b.int_type(to.bits);
  if (op.has("sat")) {
    x = clamp_integer(b, x, op.type, to);
  } else {
    x = op.type.is_signed() ? b.ir.CreateSExtOrTrunc(x, type) : b.ir.CreateZExtOrTrunc(x, type);
  }
  b.write(b.operand(op, 0), x, to.is_signed());
}

// The value rounded to an integer as .rni, .rzi, .rmi, .rpi say.
Value* round_integral(FunctionBuilder& b, const Operation& op, Value* x) {
  if (op.has("rni")) return b.unary(Intrinsic::roundeven, x);
  if (op.has("rzi")) return b.unary(Intrinsic::trunc, x);
  return b.unary(op.has("rmi") ? Intrinsic::floor : Intrinsic::ceil, x);
}

// Out of range is clamped and NaN is zero, with or without .sat.
void emit_float_to_integer(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 2);
  const ptx::Type& to = op.first_type;
  Value* x = b.read_floats(b.operand(op, 1), op.type)[0];
  if (b.failed()) return;
  if (is_f32(op.type)) x = flush_if(b, op, x);
  x = round_integral(b, op, x);
  Value* result = b.intrinsic(to.is_signed() ? Intrinsic::fptosi_sat : Intrinsic::fptoui_sat, {x},
                              {b.int_type(to.bits), x->getType()});
  b.write(b.operand(op, 0), result, to.is_signed());
}

// A double that rounds to f16 or bf16 as the integer does. It is exact, or the bits beyond 53 are
// merged into its last bit.
Value* as_double(FunctionBuilder& b, Value* x, bool is_signed) {
  if (x->getType()->getIntegerBitWidth() == 64) {
    Value* lost = b.ir.CreateICmpNE(b.ir.CreateAnd(x, 0x7ff), b.constant(64, 0));
    Value* gathered =
        b.ir.CreateOr(b.ir.CreateAnd(x, ~std::uint64_t{0x7ff}),
                      b.ir.CreateSelect(lost, b.constant(64, 0x800), b.constant(64, 0)));
    Value* offset = b.constant(64, is_signed ? std::uint64_t{1} << 53 : 0);
    Value* large = b.ir.CreateICmpUGT(b.ir.CreateAdd(x, offset),
                                      b.constant(64, std::uint64_t{1} << (is_signed ? 54 : 53)));
    x = b.ir.CreateSelect(large, gathered, x);
  }
  return is_signed ? b.ir.CreateSIToFP(x, b.double_type()) : b.ir.CreateUIToFP(x, b.double_type());
}

void emit_integer_to_float(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 2);
  const ptx::Type& to = op.first_type;
  const bool is_signed = op.type.is_signed();
  Value* x = b.read(b.operand(op, 1), op.type.bits);
  llvm::Type* type = to.format == FloatFormat::kF64 ? b.double_type() : b.float_type();
  const char* mode = directed_rounding(op);
  Value* result = nullptr;
  if (to.bits == 16) {
    result = as_double(b, x, is_signed);
    result = mode != nullptr ? round_directed(b, mode, result, to.format)
                             : round_to(b, result, to.format);
  } else if (mode != nullptr) {
    x = is_signed ? b.ir.CreateSExt(x, b.int_type(64)) : b.ir.CreateZExt(x, b.int_type(64));
    const std::string name = std::string("gpurun_round_from_") + (is_signed ? "s64" : "u64") +
                             (type->isDoubleTy() ? "_f64_" : "_f32_") + mode;
    result = b.call_helper(name.c_str(), type, {x}, true);
  } else {
    result = is_signed ? b.ir.CreateSIToFP(x, type) : b.ir.CreateUIToFP(x, type);
  }
  if (op.has("sat")) result = saturate(b, result);
  b.write_floats(b.operand(op, 0), {result}, to);
}

Value* finish(FunctionBuilder& b, const Operation& op, Value* x) {
  if (is_f32(op.first_type) && op.has("ftz")) x = flush(b, x, FloatFormat::kF32);
  if (op.has("sat")) x = saturate(b, x);
  if (op.has("relu")) x = clamp_negative(b, x);
  return x;
}

// One scalar from the source's format to the destination's.
Value* convert_float(FunctionBuilder& b, const Operation& op, Value* x) {
  const FloatFormat to = scalar_format(op.first_type.format);
  if (is_f32(op.type)) x = flush_if(b, op, x);
  const char* mode = directed_rounding(op);
  if (mode == nullptr) {
    x = round_to(b, x, to);
  } else if (to == FloatFormat::kF32) {
    x = b.call_helper((std::string("gpurun_round_narrow_f32_") + mode).c_str(), b.float_type(), {x},
                      true);
  } else {
    x = round_directed(b, mode, x, to);
  }
  return finish(b, op, x);
}

void emit_float_to_float(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 2);
  Value* x = b.read_floats(b.operand(op, 1), op.type)[0];
  if (b.failed()) return;
  b.write_floats(b.operand(op, 0), {convert_float(b, op, x)}, op.first_type);
}

// cvt.rzi.f32.f32 and similar ones: to an integral value of the same format.
void emit_round_integral(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 2);
  Value* x = b.read_floats(b.operand(op, 1), op.type)[0];
  if (b.failed()) return;
  if (is_f32(op.type)) x = flush_if(b, op, x);
  b.write_floats(b.operand(op, 0), {finish(b, op, round_integral(b, op, x))}, op.first_type);
}

// cvt.f16x2.f32 d, a, b: a becomes the high half.
void emit_pack(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 3, 3);
  Value* high = b.read_floats(b.operand(op, 1), op.type)[0];
  Value* low = b.read_floats(b.operand(op, 2), op.type)[0];
  if (b.failed()) return;
  Value* halves[] = {convert_float(b, op, low), convert_float(b, op, high)};
  b.write_floats(b.operand(op, 0), halves, op.first_type);
}

constexpr VariantRow kConvertRows[] = {
    {"cvt.{u8,u16,u32,u64,s8,s16,s32,s64}.{u8,u16,u32,u64,s8,s16,s32,s64}",
     emit_integer_to_integer},
    // Only where a value may not fit.
    {"cvt.sat.{u8,u16,u32,u64}.{s8,s16,s32,s64}", emit_integer_to_integer},
    {"cvt.sat.u8.{u16,u32,u64}", emit_integer_to_integer},
    {"cvt.sat.u16.{u32,u64}", emit_integer_to_integer},
    {"cvt.sat.u32.u64", emit_integer_to_integer},
    {"cvt.sat.s8.{u8,u16,u32,u64,s16,s32,s64}", emit_integer_to_integer},
    {"cvt.sat.s16.{u16,u32,u64,s32,s64}", emit_integer_to_integer},
    {"cvt.sat.s32.{u32,u64,s64}", emit_integer_to_integer},
    {"cvt.sat.s64.u64", emit_integer_to_integer},
    {"cvt.{rni,rzi,rmi,rpi}{,.ftz}{,.sat}.{u8,u16,u32,u64,s8,s16,s32,s64}.f32",
     emit_float_to_integer},
    {"cvt.{rni,rzi,rmi,rpi}{,.sat}.{u8,u16,u32,u64,s8,s16,s32,s64}.{f16,f64}",
     emit_float_to_integer},
    {"cvt.{rni,rzi,rmi,rpi}.{u16,u32,u64,s16,s32,s64}.bf16", emit_float_to_integer},
    {"cvt.{rn,rz,rm,rp}{,.sat}.{f32,f64}.{u8,u16,u32,u64,s8,s16,s32,s64}", emit_integer_to_float},
    {"cvt.{rn,rz,rm,rp}{,.sat}.f16.{u8,u16,u32,u64,s8,s16,s32,s64}", emit_integer_to_float},
    {"cvt.{rn,rz,rm,rp}.bf16.{u16,u32,u64,s16,s32,s64}", emit_integer_to_float},
    {"cvt{,.ftz}{,.sat}.{f32,f64}.f32", emit_float_to_float},
    {"cvt{,.sat}.{f32,f64}.f16", emit_float_to_float},
    {"cvt.ftz{,.sat}.f32.f16", emit_float_to_float},
    {"cvt.{f32,f64}.bf16", emit_float_to_float},
    {"cvt.{rn,rz,rm,rp}{,.ftz}{,.sat}.f32.f64", emit_float_to_float},
    {"cvt.f64.f64", emit_float_to_float},
    {"cvt.{rn,rz,rm,rp}{,.ftz}{,.sat}.f16.f32", emit_float_to_float},
    {"cvt.{rn,rz}.relu.{f16,bf16}.f32", emit_float_to_float},
    {"cvt.{rn,rz,rm,rp}.bf16.{f32,f64}", emit_float_to_float},
    {"cvt.{rn,rz,rm,rp}{,.sat}.f16.f64", emit_float_to_float},
    {"cvt.{rni,rzi,rmi,rpi}{,.ftz}{,.sat}.f32.f32", emit_round_integral},
    {"cvt.{rni,rzi,rmi,rpi}{,.sat}.f64.f64", emit_round_integral},
    {"cvt.{rni,rzi,rmi,rpi}{,.sat}.f16.f16", emit_round_integral},
    {"cvt.{rni,rzi,rmi,rpi}.bf16.bf16", emit_round_integral},
    {"cvt.{rn,rz}{,.relu}.{f16x2,bf16x2}.f32", emit_pack},
};

}  // namespace

std::span<const VariantRow> convert_rows() { return kConvertRows; }

}  // namespace gpurun::emulated
