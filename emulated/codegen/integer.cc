// Integer arithmetic (PTX ISA, sections 9.7.1 and 9.7.2).
#include "emulated/codegen/function_builder.h"
#include "emulated/codegen/variant_table.h"

namespace gpurun::emulated {
namespace {

using llvm::Value;
namespace Intrinsic = llvm::Intrinsic;

void emit_add_sub(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 3, 3);
  const bool add = op.instruction.opcode == "add";
  Value* x = b.read(b.operand(op, 1), op.type);
  Value* y = b.read(b.operand(op, 2), op.type);
  Value* result = nullptr;
  if (op.has("cc")) {
    Value* pair = b.intrinsic(add ? Intrinsic::uadd_with_overflow : Intrinsic::usub_with_overflow,
                              {x, y}, {x->getType()});
    result = b.ir.CreateExtractValue(pair, 0);
    b.ir.CreateStore(b.ir.CreateExtractValue(pair, 1), b.carry_flag());
  } else if (op.has("sat")) {
    result = b.binary(add ? Intrinsic::sadd_sat : Intrinsic::ssub_sat, x, y);
  } else {
    result = add ? b.ir.CreateAdd(x, y) : b.ir.CreateSub(x, y);
  }
  b.write(b.operand(op, 0), result, op.type.is_signed());
}

// The product's low or high half, or all of it.
Value* product(FunctionBuilder& b, const Operation& op, Value* x, Value* y) {
  if (!op.has("wide") && !op.has("hi")) return b.ir.CreateMul(x, y);
  llvm::Type* wide = b.int_type(op.type.bits * 2u);
  const auto extend = [&](Value* v) {
    return op.type.is_signed() ? b.ir.CreateSExt(v, wide) : b.ir.CreateZExt(v, wide);
  };
  Value* all = b.ir.CreateMul(extend(x), extend(y));
  if (op.has("wide")) return all;
  return b.ir.CreateTrunc(b.ir.CreateLShr(all, op.type.bits), b.int_type(op.type.bits));
}

// x + y + carry (or x - y - borrow), and the new carry.
Value* add_with_carry(FunctionBuilder& b, const Operation& op, Value* x, Value* y, bool subtract) {
  const unsigned bits = op.type.bits;
  llvm::Type* wide = b.int_type(bits * 2);
  Value* carry = b.ir.CreateZExt(b.ir.CreateLoad(b.int_type(1), b.carry_flag()), wide);
  x = b.ir.CreateZExt(x, wide);
  y = b.ir.CreateZExt(y, wide);
  Value* sum = subtract ? b.ir.CreateSub(b.ir.CreateSub(x, y), carry)
                        : b.ir.CreateAdd(b.ir.CreateAdd(x, y), carry);
  if (op.has("cc")) {
    b.ir.CreateStore(b.ir.CreateTrunc(b.ir.CreateLShr(sum, bits), b.int_type(1)), b.carry_flag());
  }
  return b.ir.CreateTrunc(sum, b.int_type(bits));
}

void emit_addc_subc(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 3, 3);
  Value* x = b.read(b.operand(op, 1), op.type);
  Value* y = b.read(b.operand(op, 2), op.type);
  b.write(b.operand(op, 0), add_with_carry(b, op, x, y, op.instruction.opcode == "subc"));
}

void emit_mul(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 3, 3);
  Value* x = b.read(b.operand(op, 1), op.type);
  Value* y = b.read(b.operand(op, 2), op.type);
  b.write(b.operand(op, 0), product(b, op, x, y), op.type.is_signed());
}

void emit_mad(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 4, 4);
  Value* x = b.read(b.operand(op, 1), op.type);
  Value* y = b.read(b.operand(op, 2), op.type);
  Value* all = product(b, op, x, y);
  Value* addend =
      b.read(b.operand(op, 3), all->getType()->getIntegerBitWidth(), op.type.is_signed());
  Value* result = nullptr;
  if (op.instruction.opcode == "madc") {
    result = add_with_carry(b, op, all, addend, false);
  } else if (op.has("cc")) {
    Value* pair = b.intrinsic(Intrinsic::uadd_with_overflow, {all, addend}, {all->getType()});
    result = b.ir.CreateExtractValue(pair, 0);
    b.ir.CreateStore(b.ir.CreateExtractValue(pair, 1), b.carry_flag());
  } else if (op.has("sat")) {
    result = b.binary(Intrinsic::sadd_sat, all, addend);
  } else {
    result = b.ir.CreateAdd(all, addend);
  }
  b.write(b.operand(op, 0), result, op.type.is_signed());
}

void emit_mul24_mad24(FunctionBuilder& b, const Operation& op) {
  const bool mad = op.instruction.opcode == "mad24";
  b.expect_operands(op, mad ? 4 : 3, mad ? 4 : 3);
  const auto low24 = [&](std::size_t index) {
    Value* v = b.ir.CreateTrunc(b.read(b.operand(op, index), 32), b.int_type(24));
    llvm::Type* wide = b.int_type(64);
    return op.type.is_signed() ? b.ir.CreateSExt(v, wide) : b.ir.CreateZExt(v, wide);
  };
  Value* all = b.ir.CreateMul(low24(1), low24(2));
  // .hi is bits 47..16 of the 48-bit product.
  if (op.has("hi")) all = b.ir.CreateLShr(all, 16);
  Value* result = b.ir.CreateTrunc(all, b.int_type(32));
  if (mad) result = b.ir.CreateAdd(result, b.read(b.operand(op, 3), 32));
  b.write(b.operand(op, 0), result);
}

// The host traps on a zero divisor and on INT_MIN / -1, and NVIDIA's devices do not. There,
// division by zero gives all ones, and its remainder is the dividend.
void emit_div_rem(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 3, 3);
  Value* x = b.read(b.operand(op, 1), op.type);
  Value* y = b.read(b.operand(op, 2), op.type);
  llvm::Type* type = x->getType();
  Value* zero = llvm::ConstantInt::get(type, 0);
  Value* one = llvm::ConstantInt::get(type, 1);
  Value* minus_one = llvm::Constant::getAllOnesValue(type);
  Value* by_zero = b.ir.CreateICmpEQ(y, zero);
  const bool div = op.instruction.opcode == "div";
  Value* result = nullptr;
  if (op.type.is_signed()) {
    Value* by_minus_one = b.ir.CreateICmpEQ(y, minus_one);
    Value* safe = b.ir.CreateSelect(b.ir.CreateOr(by_zero, by_minus_one), one, y);
    result = div ? b.ir.CreateSelect(by_minus_one, b.ir.CreateNeg(x), b.ir.CreateSDiv(x, safe))
                 : b.ir.CreateSRem(x, safe);
  } else {
    Value* safe = b.ir.CreateSelect(by_zero, one, y);
    result = div ? b.ir.CreateUDiv(x, safe) : b.ir.CreateURem(x, safe);
  }
  result = b.ir.CreateSelect(by_zero, div ? minus_one : x, result);
  b.write(b.operand(op, 0), result, op.type.is_signed());
}

void emit_neg_abs(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 2);
  Value* x = b.read(b.operand(op, 1), op.type);
  Value* result = op.instruction.opcode == "neg"
                      ? b.ir.CreateNeg(x)
                      : b.intrinsic(Intrinsic::abs, {x, b.constant(1, 0)}, {x->getType()});
  b.write(b.operand(op, 0), result, true);
}

void emit_min_max(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 3, 3);
  Value* x = b.read(b.operand(op, 1), op.type);
  Value* y = b.read(b.operand(op, 2), op.type);
  const bool min = op.instruction.opcode == "min";
  Value* result = op.type.is_signed() ? b.binary(min ? Intrinsic::smin : Intrinsic::smax, x, y)
                                      : b.binary(min ? Intrinsic::umin : Intrinsic::umax, x, y);
  if (op.has("relu")) result = b.binary(Intrinsic::smax, result, b.constant(op.type.bits, 0));
  b.write(b.operand(op, 0), result, op.type.is_signed());
}

// add, min, max of two halves, each separately.
void emit_halves(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 3, 3);
  const bool is_signed = op.has("s16x2");
  auto* halves = llvm::FixedVectorType::get(b.int_type(16), 2);
  Value* x = b.ir.CreateBitCast(b.read(b.operand(op, 1), 32), halves);
  Value* y = b.ir.CreateBitCast(b.read(b.operand(op, 2), 32), halves);
  Value* result = nullptr;
  if (op.instruction.opcode == "add") {
    result = b.ir.CreateAdd(x, y);
  } else if (op.instruction.opcode == "min") {
    result = b.binary(is_signed ? Intrinsic::smin : Intrinsic::umin, x, y);
  } else {
    result = b.binary(is_signed ? Intrinsic::smax : Intrinsic::umax, x, y);
  }
  if (op.has("relu")) {
    result = b.binary(Intrinsic::smax, result, llvm::Constant::getNullValue(halves));
  }
  b.write(b.operand(op, 0), result);
}

void emit_sad(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 4, 4);
  Value* x = b.read(b.operand(op, 1), op.type);
  Value* y = b.read(b.operand(op, 2), op.type);
  Value* low = b.binary(op.type.is_signed() ? Intrinsic::smin : Intrinsic::umin, x, y);
  Value* high = b.binary(op.type.is_signed() ? Intrinsic::smax : Intrinsic::umax, x, y);
  b.write(b.operand(op, 0),
          b.ir.CreateAdd(b.ir.CreateSub(high, low), b.read(b.operand(op, 3), op.type)),
          op.type.is_signed());
}

// dp4a.atype.btype, dp2a.mode.atype.btype: sums of products of 8-bit (16 x 8-bit) parts.
void emit_dot_product(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 4, 4);
  const bool four = op.instruction.opcode == "dp4a";
  const unsigned x_bits = four ? 8 : 16;
  Value* x = b.read(b.operand(op, 1), 32);
  Value* y = b.read(b.operand(op, 2), 32);
  Value* sum = b.read(b.operand(op, 3), 32);
  const auto part = [&](Value* v, unsigned shift, unsigned bits, bool is_signed) {
    v = b.ir.CreateTrunc(b.ir.CreateLShr(v, shift), b.int_type(bits));
    return is_signed ? b.ir.CreateSExt(v, b.int_type(32)) : b.ir.CreateZExt(v, b.int_type(32));
  };
  const unsigned y_start = !four && op.has("hi") ? 16 : 0;
  for (unsigned i = 0; i < (four ? 4u : 2u); ++i) {
    sum = b.ir.CreateAdd(sum, b.ir.CreateMul(part(x, i * x_bits, x_bits, op.first_type.is_signed()),
                                             part(y, y_start + 8 * i, 8, op.type.is_signed())));
  }
  b.write(b.operand(op, 0), sum);
}

constexpr VariantRow kIntegerRows[] = {
    {"add.{u16,u32,u64,s16,s32,s64}", emit_add_sub},
    {"sub.{u16,u32,u64,s16,s32,s64}", emit_add_sub},
    {"{add,sub}.sat.s32", emit_add_sub},
    {"{add,sub}.cc.{u32,s32,u64,s64}", emit_add_sub},
    {"{addc,subc}{,.cc}.{u32,s32,u64,s64}", emit_addc_subc},
    {"mul.{lo,hi}.{u16,u32,u64,s16,s32,s64}", emit_mul},
    {"mul.wide.{u16,u32,s16,s32}", emit_mul},
    {"mad.{lo,hi}.{u16,u32,u64,s16,s32,s64}", emit_mad},
    {"mad.wide.{u16,u32,s16,s32}", emit_mad},
    {"mad.hi.sat.s32", emit_mad},
    {"mad.{lo,hi}.cc.{u32,s32,u64,s64}", emit_mad},
    {"madc.{lo,hi}{,.cc}.{u32,s32,u64,s64}", emit_mad},
    {"{mul24,mad24}.{lo,hi}.{u32,s32}", emit_mul24_mad24},
    {"{div,rem}.{u16,u32,u64,s16,s32,s64}", emit_div_rem},
    {"{neg,abs}.{s16,s32,s64}", emit_neg_abs},
    {"{min,max}.{u16,u32,u64,s16,s32,s64}", emit_min_max},
    {"{min,max}.relu.s32", emit_min_max},
    {"{add,min,max}.{u16x2,s16x2}", emit_halves},
    {"{min,max}.relu.s16x2", emit_halves},
    {"sad.{u16,u32,u64,s16,s32,s64}", emit_sad},
    {"dp4a.{u32,s32}.{u32,s32}", emit_dot_product},
    {"dp2a.{lo,hi}.{u32,s32}.{u32,s32}", emit_dot_product},
};

}  // namespace

std::span<const VariantRow> integer_rows() { return kIntegerRows; }

}  // namespace gpurun::emulated
