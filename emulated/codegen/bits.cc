// Logic, shifts and bit fields (PTX ISA, sections 9.7.1 and 9.7.8).
#include "emulated/codegen/function_builder.h"
#include "emulated/codegen/variant_table.h"

namespace gpurun::emulated {
namespace {

using llvm::Value;
namespace Intrinsic = llvm::Intrinsic;

void emit_logic(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 3, 3);
  Value* x = b.read(b.operand(op, 1), op.type.bits);
  Value* y = b.read(b.operand(op, 2), op.type.bits);
  const std::string_view name = op.instruction.opcode;
  b.write(b.operand(op, 0), name == "and"  ? b.ir.CreateAnd(x, y)
                            : name == "or" ? b.ir.CreateOr(x, y)
                                           : b.ir.CreateXor(x, y));
}

void emit_not(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 2);
  Value* x = b.read(b.operand(op, 1), op.type.bits);
  if (op.instruction.opcode == "cnot") {
    Value* zero = b.ir.CreateICmpEQ(x, b.constant(op.type.bits, 0));
    b.write(b.operand(op, 0), b.ir.CreateZExt(zero, x->getType()));
  } else {
    b.write(b.operand(op, 0), b.ir.CreateNot(x));
  }
}

// Amounts over the width shift everything out.
void emit_shift(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 3, 3);
  const unsigned bits = op.type.bits;
  Value* x = b.read(b.operand(op, 1), bits);
  Value* amount = b.read(b.operand(op, 2), 32);
  const bool arithmetic = op.type.is_signed();
  Value* over = b.ir.CreateICmpUGE(amount, b.constant(32, bits));
  Value* safe =
      b.ir.CreateZExtOrTrunc(b.ir.CreateAnd(amount, b.constant(32, bits - 1)), b.int_type(bits));
  Value* shifted = nullptr;
  Value* all_out = b.constant(bits, 0);
  if (op.instruction.opcode == "shl") {
    shifted = b.ir.CreateShl(x, safe);
  } else if (arithmetic) {
    shifted = b.ir.CreateAShr(x, safe);
    all_out = b.ir.CreateAShr(x, bits - 1);
  } else {
    shifted = b.ir.CreateLShr(x, safe);
  }
  b.write(b.operand(op, 0), b.ir.CreateSelect(over, all_out, shifted), arithmetic);
}

// shf.l/.r: a window of 32 bits in b:a.
void emit_funnel_shift(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 4, 4);
  Value* low = b.ir.CreateZExt(b.read(b.operand(op, 1), 32), b.int_type(64));
  Value* high = b.ir.CreateZExt(b.read(b.operand(op, 2), 32), b.int_type(64));
  Value* amount = b.read(b.operand(op, 3), 32);
  amount = op.has("wrap") ? b.ir.CreateAnd(amount, b.constant(32, 31))
                          : b.binary(Intrinsic::umin, amount, b.constant(32, 32));
  amount = b.ir.CreateZExt(amount, b.int_type(64));
  Value* both = b.ir.CreateOr(b.ir.CreateShl(high, 32), low);
  Value* result = op.has("l") ? b.ir.CreateLShr(b.ir.CreateShl(both, amount), 32)
                              : b.ir.CreateLShr(both, amount);
  b.write(b.operand(op, 0), b.ir.CreateTrunc(result, b.int_type(32)));
}

// Any function of three bits, which is bit (4a + 2b + c) of the table.
void emit_lop3(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 5, 5);
  const ptx::Operand& table = b.operand(op, 4);
  if (table.kind != ptx::Operand::Kind::kInteger) return b.refuse("a constant table expected");
  Value* in[3] = {b.read(b.operand(op, 1), 32), b.read(b.operand(op, 2), 32),
                  b.read(b.operand(op, 3), 32)};
  Value* result = b.constant(32, 0);
  for (unsigned row = 0; row < 8; ++row) {
    if ((table.bits >> row & 1) == 0) continue;
    Value* term = llvm::Constant::getAllOnesValue(b.int_type(32));
    for (unsigned i = 0; i < 3; ++i) {
      const bool set = row >> (2 - i) & 1;
      term = b.ir.CreateAnd(term, set ? in[i] : b.ir.CreateNot(in[i]));
    }
    result = b.ir.CreateOr(result, term);
  }
  b.write(b.operand(op, 0), result);
}

Value* low_byte(FunctionBuilder& b, const ptx::Operand& operand, unsigned bits) {
  Value* v = b.ir.CreateAnd(b.read(operand, 32), b.constant(32, 255));
  return b.ir.CreateZExt(v, b.int_type(bits));
}

// All in twice the width, where no shift amount is out of range after clamping.
void emit_bfe(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 4, 4);
  const unsigned bits = op.type.bits;
  const unsigned wide = 4 * bits;
  Value* x = b.read(b.operand(op, 1), bits);
  x = op.type.is_signed() ? b.ir.CreateSExt(x, b.int_type(wide))
                          : b.ir.CreateZExt(x, b.int_type(wide));
  Value* position =
      b.binary(Intrinsic::umin, low_byte(b, b.operand(op, 2), wide), b.constant(wide, 2 * bits));
  Value* length =
      b.binary(Intrinsic::umin, low_byte(b, b.operand(op, 3), wide), b.constant(wide, bits));
  Value* shifted =
      op.type.is_signed() ? b.ir.CreateAShr(x, position) : b.ir.CreateLShr(x, position);
  // Shifting up and down by the same amount leaves `length` bits, sign-extended for signed types.
  Value* drop = b.ir.CreateSub(b.constant(wide, wide - 1), length);
  Value* up = b.ir.CreateShl(b.ir.CreateShl(shifted, drop), 1);
  Value* down = op.type.is_signed() ? b.ir.CreateAShr(b.ir.CreateAShr(up, drop), 1)
                                    : b.ir.CreateLShr(b.ir.CreateLShr(up, drop), 1);
  b.write(b.operand(op, 0), b.ir.CreateTrunc(down, b.int_type(bits)), op.type.is_signed());
}

void emit_bfi(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 5, 5);
  const unsigned bits = op.type.bits;
  const unsigned wide = 4 * bits;
  Value* field = b.ir.CreateZExt(b.read(b.operand(op, 1), bits), b.int_type(wide));
  Value* base = b.ir.CreateZExt(b.read(b.operand(op, 2), bits), b.int_type(wide));
  Value* position =
      b.binary(Intrinsic::umin, low_byte(b, b.operand(op, 3), wide), b.constant(wide, bits));
  Value* length =
      b.binary(Intrinsic::umin, low_byte(b, b.operand(op, 4), wide), b.constant(wide, bits));
  Value* one = b.constant(wide, 1);
  Value* mask = b.ir.CreateShl(b.ir.CreateSub(b.ir.CreateShl(one, length), one), position);
  Value* result = b.ir.CreateOr(b.ir.CreateAnd(base, b.ir.CreateNot(mask)),
                                b.ir.CreateAnd(b.ir.CreateShl(field, position), mask));
  b.write(b.operand(op, 0), b.ir.CreateTrunc(result, b.int_type(bits)));
}

void emit_bmsk(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 3, 3);
  const bool wrap = op.has("wrap");
  const auto amount = [&](std::size_t index) {
    Value* v = b.read(b.operand(op, index), 32);
    v = wrap ? b.ir.CreateAnd(v, b.constant(32, 31))
             : b.binary(Intrinsic::umin, v, b.constant(32, 32));
    return b.ir.CreateZExt(v, b.int_type(64));
  };
  Value* one = b.constant(64, 1);
  Value* mask = b.ir.CreateSub(b.ir.CreateShl(one, amount(2)), one);
  b.write(b.operand(op, 0), b.ir.CreateTrunc(b.ir.CreateShl(mask, amount(1)), b.int_type(32)));
}

void emit_bfind(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 2);
  const unsigned bits = op.type.bits;
  Value* x = b.read(b.operand(op, 1), bits);
  // For signed types: the highest bit that differs from the sign.
  if (op.type.is_signed()) x = b.ir.CreateXor(x, b.ir.CreateAShr(x, bits - 1));
  Value* leading = b.intrinsic(Intrinsic::ctlz, {x, b.constant(1, 0)}, {x->getType()});
  Value* found = op.has("shiftamt") ? leading : b.ir.CreateSub(b.constant(bits, bits - 1), leading);
  found = b.ir.CreateZExtOrTrunc(found, b.int_type(32));
  Value* none = b.ir.CreateICmpEQ(x, b.constant(bits, 0));
  b.write(b.operand(op, 0), b.ir.CreateSelect(none, b.constant(32, 0xffffffffu), found));
}

void emit_count(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 2);
  Value* x = b.read(b.operand(op, 1), op.type.bits);
  if (op.instruction.opcode == "brev") {
    return b.write(b.operand(op, 0), b.unary(Intrinsic::bitreverse, x));
  }
  Value* count = op.instruction.opcode == "popc"
                     ? b.unary(Intrinsic::ctpop, x)
                     : b.intrinsic(Intrinsic::ctlz, {x, b.constant(1, 0)}, {x->getType()});
  b.write(b.operand(op, 0), b.ir.CreateZExtOrTrunc(count, b.int_type(32)));
}

struct PermuteMode {
  std::string_view name;
  std::uint16_t selectors[4];  // By the low two bits of the control operand.
};

constexpr PermuteMode kPermuteModes[] = {
    {"f4e", {0x3210, 0x4321, 0x5432, 0x6543}}, {"b4e", {0x5670, 0x6701, 0x7012, 0x0123}},
    {"rc8", {0x0000, 0x1111, 0x2222, 0x3333}}, {"ecl", {0x3210, 0x3211, 0x3222, 0x3333}},
    {"ecr", {0x0000, 0x1110, 0x2210, 0x3210}}, {"rc16", {0x1010, 0x3232, 0x1010, 0x3232}},
};

void emit_prmt(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 4, 4);
  Value* low = b.ir.CreateZExt(b.read(b.operand(op, 1), 32), b.int_type(64));
  Value* high = b.ir.CreateZExt(b.read(b.operand(op, 2), 32), b.int_type(64));
  Value* bytes = b.ir.CreateOr(b.ir.CreateShl(high, 32), low);
  Value* selectors = b.read(b.operand(op, 3), 32);
  for (const PermuteMode& mode : kPermuteModes) {
    if (!op.has(mode.name)) continue;
    Value* which = b.ir.CreateAnd(selectors, b.constant(32, 3));
    Value* chosen = b.constant(32, mode.selectors[0]);
    for (unsigned i = 1; i < 4; ++i) {
      chosen = b.ir.CreateSelect(b.ir.CreateICmpEQ(which, b.constant(32, i)),
                                 b.constant(32, mode.selectors[i]), chosen);
    }
    selectors = chosen;
  }
  Value* result = b.constant(32, 0);
  for (unsigned i = 0; i < 4; ++i) {
    Value* selector = b.ir.CreateLShr(selectors, 4 * i);
    Value* shift = b.ir.CreateShl(b.ir.CreateAnd(selector, b.constant(32, 7)), 3);
    Value* byte = b.ir.CreateTrunc(b.ir.CreateLShr(bytes, b.ir.CreateZExt(shift, b.int_type(64))),
                                   b.int_type(8));
    Value* replicate =
        b.ir.CreateICmpNE(b.ir.CreateAnd(selector, b.constant(32, 8)), b.constant(32, 0));
    byte = b.ir.CreateSelect(replicate, b.ir.CreateAShr(byte, 7), byte);
    result = b.ir.CreateOr(result, b.ir.CreateShl(b.ir.CreateZExt(byte, b.int_type(32)), 8 * i));
  }
  b.write(b.operand(op, 0), result);
}

// szext d, a, b: the lowest b bits of a, extended. No bits give 0, 32 and more all of a.
void emit_szext(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 3, 3);
  Value* x = b.read(b.operand(op, 1), 32);
  Value* count = b.read(b.operand(op, 2), 32);
  if (op.has("wrap")) count = b.ir.CreateAnd(count, 31);
  count = b.binary(llvm::Intrinsic::umin, count, b.constant(32, 32));
  Value* none = b.ir.CreateICmpEQ(count, b.constant(32, 0));
  Value* shift =
      b.ir.CreateSelect(none, b.constant(32, 0), b.ir.CreateSub(b.constant(32, 32), count));
  Value* top = b.ir.CreateShl(x, shift);
  Value* result = op.type.is_signed() ? b.ir.CreateAShr(top, shift) : b.ir.CreateLShr(top, shift);
  b.write(b.operand(op, 0), b.ir.CreateSelect(none, b.constant(32, 0), result));
}

constexpr VariantRow kBitsRows[] = {
    {"{and,or,xor}.{pred,b16,b32,b64}", emit_logic},
    {"not.{pred,b16,b32,b64}", emit_not},
    {"cnot.{b16,b32,b64}", emit_not},
    {"shl.{b16,b32,b64}", emit_shift},
    {"shr.{b16,b32,b64,u16,u32,u64,s16,s32,s64}", emit_shift},
    {"shf.{l,r}.{wrap,clamp}.b32", emit_funnel_shift},
    {"lop3.b32", emit_lop3},
    {"bfe.{u32,u64,s32,s64}", emit_bfe},
    {"bfi.{b32,b64}", emit_bfi},
    {"szext.{clamp,wrap}.{u32,s32}", emit_szext},
    {"bmsk.{clamp,wrap}.b32", emit_bmsk},
    {"bfind{,.shiftamt}.{u32,u64,s32,s64}", emit_bfind},
    {"{popc,clz,brev}.{b32,b64}", emit_count},
    {"prmt.b32{,.f4e,.b4e,.rc8,.ecl,.ecr,.rc16}", emit_prmt},
};

}  // namespace

std::span<const VariantRow> bit_rows() { return kBitsRows; }

}  // namespace gpurun::emulated
