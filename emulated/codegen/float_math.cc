// Rounding, flushing and saturation of floating-point values.
//
// The 16-bit formats are computed in a wider type, with a result that is exact or rounded to odd.
// So the final rounding is the only one (Boldo and Melquiond, "Emulation of a FMA and correctly
// rounded sums: proved algorithms using rounding to odd").
#include "emulated/codegen/float_math.h"

namespace gpurun::emulated {
namespace {

using llvm::Value;
using ptx::FloatFormat;
namespace Intrinsic = llvm::Intrinsic;

Value* number(Value* like, double value) { return llvm::ConstantFP::get(like->getType(), value); }

// Returns the result rounded to odd. It moves `rounded` (nearest even) to the neighbour on the side
// of `error`, if it is inexact and even.
Value* to_odd(FunctionBuilder& b, Value* rounded, Value* error) {
  const bool is_double = rounded->getType()->isDoubleTy();
  llvm::IntegerType* type = b.int_type(is_double ? 64 : 32);
  Value* bits = b.ir.CreateBitCast(rounded, type);
  Value* even = b.ir.CreateICmpEQ(b.ir.CreateAnd(bits, 1), llvm::ConstantInt::get(type, 0));
  Value* inexact = b.ir.CreateFCmpONE(error, number(error, 0));
  Value* error_negative = b.ir.CreateFCmpOLT(error, number(error, 0));
  Value* value_negative = b.ir.CreateICmpSLT(bits, llvm::ConstantInt::get(type, 0));
  Value* away = b.ir.CreateICmpEQ(error_negative, value_negative);
  Value* step = b.ir.CreateSelect(away, llvm::ConstantInt::get(type, 1),
                                  llvm::Constant::getAllOnesValue(type));
  Value* moved = b.ir.CreateSelect(b.ir.CreateAnd(even, inexact), b.ir.CreateAdd(bits, step), bits);
  return b.ir.CreateBitCast(moved, rounded->getType());
}

// x + y rounded to odd (Knuth's two-sum gives the exact error).
Value* odd_sum(FunctionBuilder& b, Value* x, Value* y) {
  Value* sum = b.ir.CreateFAdd(x, y);
  Value* y_part = b.ir.CreateFSub(sum, x);
  Value* x_part = b.ir.CreateFSub(sum, y_part);
  Value* error = b.ir.CreateFAdd(b.ir.CreateFSub(x, x_part), b.ir.CreateFSub(y, y_part));
  return to_odd(b, sum, error);
}

// A double as a float rounded to odd.
Value* odd_narrow(FunctionBuilder& b, Value* value) {
  Value* narrow = b.ir.CreateFPTrunc(value, b.float_type());
  Value* error = b.ir.CreateFSub(value, b.ir.CreateFPExt(narrow, b.double_type()));
  // Beyond the largest float the error is infinite, with the value's opposite sign: one step back.
  return to_odd(b, narrow, error);
}

Value* float_to_bf16(FunctionBuilder& b, Value* value) {
  Value* bits = b.ir.CreateBitCast(value, b.int_type(32));
  Value* odd = b.ir.CreateAnd(b.ir.CreateLShr(bits, 16), 1);
  Value* rounded = b.ir.CreateAdd(bits, b.ir.CreateAdd(odd, b.constant(32, 0x7fff)));
  rounded = b.ir.CreateAnd(rounded, b.constant(32, 0xffff0000u));
  Value* nan = b.ir.CreateFCmpUNO(value, value);
  rounded = b.ir.CreateSelect(nan, b.constant(32, 0x7fff0000u), rounded);
  return b.ir.CreateBitCast(rounded, b.float_type());
}

Value* float_to_f16(FunctionBuilder& b, Value* value) {
  return b.ir.CreateFPExt(b.ir.CreateFPTrunc(value, llvm::Type::getHalfTy(b.context())),
                          b.float_type());
}

}  // namespace

FloatFormat scalar_format(FloatFormat format) {
  switch (format) {
    case FloatFormat::kF16x2:
      return FloatFormat::kF16;
    case FloatFormat::kBf16x2:
      return FloatFormat::kBf16;
    case FloatFormat::kF32x2:
      return FloatFormat::kF32;
    default:
      return format;
  }
}

Value* flush(FunctionBuilder& b, Value* value, FloatFormat format) {
  double smallest = 0x1p-126;
  if (scalar_format(format) == FloatFormat::kF16) smallest = 0x1p-14;
  if (format == FloatFormat::kF64) smallest = 0x1p-1022;
  Value* small = b.ir.CreateFCmpOLT(b.unary(Intrinsic::fabs, value), number(value, smallest));
  Value* zero = b.binary(Intrinsic::copysign, number(value, 0), value);
  return b.ir.CreateSelect(small, zero, value);
}

Value* flush_if(FunctionBuilder& b, const Operation& op, Value* value) {
  return op.has("ftz") ? flush(b, value, op.type.format) : value;
}

Value* saturate(FunctionBuilder& b, Value* value) {
  Value* above = b.ir.CreateFCmpOGT(value, number(value, 0));
  value = b.ir.CreateSelect(above, value, number(value, 0));
  return b.ir.CreateSelect(b.ir.CreateFCmpOLT(value, number(value, 1)), value, number(value, 1));
}

Value* clamp_negative(FunctionBuilder& b, Value* value) {
  return b.ir.CreateSelect(b.ir.CreateFCmpOLE(value, number(value, 0)), number(value, 0), value);
}

Value* round_to(FunctionBuilder& b, Value* value, FloatFormat format) {
  format = scalar_format(format);
  const bool is_double = value->getType()->isDoubleTy();
  if (format == FloatFormat::kF16) {
    return float_to_f16(b, is_double ? odd_narrow(b, value) : value);
  }
  if (format == FloatFormat::kBf16) {
    return float_to_bf16(b, is_double ? odd_narrow(b, value) : value);
  }
  if (format == FloatFormat::kF32 && is_double) return b.ir.CreateFPTrunc(value, b.float_type());
  if (format == FloatFormat::kF64 && !is_double) return b.ir.CreateFPExt(value, b.double_type());
  return value;
}

Value* truncate_to(FunctionBuilder& b, Value* value, FloatFormat format) {
  format = scalar_format(format);
  if (value->getType()->isDoubleTy()) {
    value = odd_narrow(b, value);  // Odd keeps every later direction right.
  }
  if (format == FloatFormat::kBf16) {
    Value* bits = b.ir.CreateAnd(b.ir.CreateBitCast(value, b.int_type(32)), 0xffff0000u);
    Value* nan = b.ir.CreateFCmpUNO(value, value);
    bits = b.ir.CreateSelect(nan, b.constant(32, 0x7fff0000u), bits);
    return b.ir.CreateBitCast(bits, b.float_type());
  }
  // One step back when rounding to nearest went away from zero.
  llvm::Type* half = llvm::Type::getHalfTy(b.context());
  Value* nearest = b.ir.CreateFPTrunc(value, half);
  Value* magnitude = b.unary(Intrinsic::fabs, b.ir.CreateFPExt(nearest, b.float_type()));
  Value* too_far = b.ir.CreateFCmpOGT(magnitude, b.unary(Intrinsic::fabs, value));
  // Infinity stays infinity.
  Value* finite = b.ir.CreateFCmpONE(b.unary(Intrinsic::fabs, value),
                                     llvm::ConstantFP::getInfinity(value->getType()));
  too_far = b.ir.CreateAnd(too_far, finite);
  Value* bits = b.ir.CreateBitCast(nearest, b.int_type(16));
  bits = b.ir.CreateSub(bits, b.ir.CreateZExt(too_far, b.int_type(16)));
  return b.ir.CreateFPExt(b.ir.CreateBitCast(bits, half), b.float_type());
}

Value* round_directed(FunctionBuilder& b, std::string_view mode, Value* value, FloatFormat format) {
  Value* nearer_zero = truncate_to(b, value, format);
  if (mode == "rz") return nearer_zero;
  Value* wide = nearer_zero;
  if (value->getType()->isDoubleTy()) wide = b.ir.CreateFPExt(wide, b.double_type());
  Value* step = mode == "rp" ? b.ir.CreateFCmpOGT(value, wide) : b.ir.CreateFCmpOLT(value, wide);
  // One step away from zero is the next pattern. From the largest number it leads to infinity.
  Value* farther = nullptr;
  if (scalar_format(format) == FloatFormat::kBf16) {
    Value* bits = b.ir.CreateBitCast(nearer_zero, b.int_type(32));
    farther = b.ir.CreateBitCast(b.ir.CreateAdd(bits, b.constant(32, 0x10000)), b.float_type());
  } else {
    llvm::Type* half = llvm::Type::getHalfTy(b.context());
    Value* bits = b.ir.CreateBitCast(b.ir.CreateFPTrunc(nearer_zero, half), b.int_type(16));
    bits = b.ir.CreateAdd(bits, b.constant(16, 1));
    farther = b.ir.CreateFPExt(b.ir.CreateBitCast(bits, half), b.float_type());
  }
  return b.ir.CreateSelect(step, farther, nearer_zero);
}

const char* directed_rounding(const Operation& op) {
  for (const char* mode : {"rz", "rm", "rp"}) {
    if (op.has(mode)) return mode;
  }
  return nullptr;
}

Value* minimum_maximum(FunctionBuilder& b, bool minimum, bool nan_wins, Value* x, Value* y) {
  llvm::IntegerType* bits =
      b.int_type(static_cast<unsigned>(x->getType()->getPrimitiveSizeInBits()));
  // Equal values differ only in the sign of zero. The minimum takes the sign if there is one.
  Value* x_bits = b.ir.CreateBitCast(x, bits);
  Value* y_bits = b.ir.CreateBitCast(y, bits);
  Value* equal = b.ir.CreateBitCast(
      minimum ? b.ir.CreateOr(x_bits, y_bits) : b.ir.CreateAnd(x_bits, y_bits), x->getType());
  Value* x_less = b.ir.CreateFCmpOLT(x, y);
  Value* y_less = b.ir.CreateFCmpOLT(y, x);
  Value* result = b.ir.CreateSelect(minimum ? x_less : y_less, x,
                                    b.ir.CreateSelect(minimum ? y_less : x_less, y, equal));
  Value* x_nan = b.ir.CreateFCmpUNO(x, x);
  Value* y_nan = b.ir.CreateFCmpUNO(y, y);
  if (nan_wins) {
    Value* nan = llvm::ConstantFP::getNaN(x->getType(), false, ~0ull);
    return b.ir.CreateSelect(b.ir.CreateOr(x_nan, y_nan), nan, result);
  }
  return b.ir.CreateSelect(x_nan, y, b.ir.CreateSelect(y_nan, x, result));
}

Value* rounded_binary(FunctionBuilder& b, std::string_view opcode, FloatFormat format, Value* x,
                      Value* y) {
  format = scalar_format(format);
  // f32 has over twice the digits of f16 and its range, so double rounding is harmless. bf16 has
  // f32's range and is computed in double.
  const bool widen = format == FloatFormat::kBf16;
  if (widen) {
    x = b.ir.CreateFPExt(x, b.double_type());
    y = b.ir.CreateFPExt(y, b.double_type());
  }
  Value* result = nullptr;
  if (opcode == "mul") {
    result = b.ir.CreateFMul(x, y);
  } else {
    if (opcode == "sub") y = b.ir.CreateFNeg(y);
    result = widen ? odd_sum(b, x, y) : b.ir.CreateFAdd(x, y);
  }
  return round_to(b, result, format);
}

Value* rounded_fma(FunctionBuilder& b, FloatFormat format, Value* x, Value* y, Value* z) {
  format = scalar_format(format);
  if (format == FloatFormat::kF32 || format == FloatFormat::kF64) {
    return b.intrinsic(Intrinsic::fma, {x, y, z}, {x->getType()});
  }
  if (format == FloatFormat::kBf16) {
    x = b.ir.CreateFPExt(x, b.double_type());
    y = b.ir.CreateFPExt(y, b.double_type());
    z = b.ir.CreateFPExt(z, b.double_type());
  }
  Value* product = b.ir.CreateFMul(x, y);  // Exact.
  return round_to(b, odd_sum(b, product, z), format);
}

}  // namespace gpurun::emulated
