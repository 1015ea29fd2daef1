// cvt to and from formats that have no type of their own: tf32, 8-bit floats, packed integers (PTX
// ISA, section 9.7.9.21).
#include <string>

#include "emulated/codegen/float_math.h"
#include "emulated/codegen/function_builder.h"
#include "emulated/codegen/variant_table.h"

namespace gpurun::emulated {
namespace {

using llvm::Value;
namespace Intrinsic = llvm::Intrinsic;

constexpr std::uint32_t kTf32Mask = 0xffffe000u;  // 10 bits of the mantissa stay.
constexpr std::uint32_t kTf32Most = 0x7f7fe000u;  // The largest finite number.
constexpr std::uint32_t kTf32Nan = 0x7fffffffu;

void emit_tf32(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 2);
  Value* bits = b.read(b.operand(op, 1), 32);
  Value* x = b.ir.CreateBitCast(bits, b.float_type());
  Value* sign = b.ir.CreateAnd(bits, b.constant(32, 0x80000000u));
  Value* size = b.ir.CreateAnd(bits, b.constant(32, 0x7fffffffu));
  if (op.has("rna")) {
    size = b.ir.CreateAdd(size, b.constant(32, 0x1000));
  } else if (op.has("rn")) {
    Value* odd = b.ir.CreateAnd(b.ir.CreateLShr(size, 13), 1);
    size = b.ir.CreateAdd(size, b.ir.CreateAdd(odd, b.constant(32, 0xfff)));
  }
  size = b.ir.CreateAnd(size, b.constant(32, kTf32Mask));
  if (op.has("satfinite")) size = b.binary(Intrinsic::umin, size, b.constant(32, kTf32Most));
  Value* result = b.ir.CreateOr(size, sign);
  if (op.has("relu")) {
    result =
        b.ir.CreateSelect(b.ir.CreateICmpEQ(sign, b.constant(32, 0)), result, b.constant(32, 0));
  }
  result = b.ir.CreateSelect(b.ir.CreateFCmpUNO(x, x), b.constant(32, kTf32Nan), result);
  b.write(b.operand(op, 0), result);
}

std::string helper_name(const char* verb, const Operation& op) {
  return std::string("gpurun_") + verb + (op.has("e4m3x2") ? "_e4m3" : "_e5m2");
}

// Two numbers to two bytes. The first operand goes to the high byte.
void emit_to_bytes(FunctionBuilder& b, const Operation& op) {
  const bool packed = op.type.is_packed();
  b.expect_operands(op, packed ? 2 : 3, packed ? 2 : 3);
  llvm::SmallVector<Value*, 2> values;  // The low one first.
  if (packed) {
    values = b.read_floats(b.operand(op, 1), op.type);
  } else {
    values = {b.read_floats(b.operand(op, 2), op.type)[0],
              b.read_floats(b.operand(op, 1), op.type)[0]};
  }
  if (b.failed()) return;
  Value* result = b.constant(16, 0);
  for (unsigned i = 0; i < 2; ++i) {
    Value* x = op.has("relu") ? clamp_negative(b, values[i]) : values[i];
    Value* byte = b.call_helper(helper_name("narrow", op).c_str(), b.int_type(32), {x}, true);
    byte = b.ir.CreateShl(b.ir.CreateTrunc(byte, b.int_type(16)), 8 * i);
    result = b.ir.CreateOr(result, byte);
  }
  b.write(b.operand(op, 0), result);
}

// Every value of the 8-bit formats is one of f16.
void emit_from_bytes(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 2);
  Value* bytes = b.read(b.operand(op, 1), 16);
  if (b.failed()) return;
  llvm::SmallVector<Value*, 2> values;
  for (unsigned i = 0; i < 2; ++i) {
    Value* byte = b.ir.CreateAnd(b.ir.CreateLShr(bytes, 8 * i), 0xff);
    Value* x = b.call_helper(helper_name("widen", op).c_str(), b.float_type(),
                             {b.ir.CreateZExt(byte, b.int_type(32))}, true);
    values.push_back(op.has("relu") ? clamp_negative(b, x) : x);
  }
  b.write_floats(b.operand(op, 0), values, op.first_type);
}

// cvt.pack.sat: two clamped integers side by side, the first operand's above the second's. The part
// of the third operand that fits goes above both.
void emit_pack_integers(FunctionBuilder& b, const Operation& op) {
  const bool third = op.has("b32");
  b.expect_operands(op, third ? 4 : 3, third ? 4 : 3);
  const ptx::Type& to = op.first_type;
  const std::int64_t all = std::int64_t{1} << to.bits;
  const auto limit = [&](std::int64_t n) { return b.constant(32, static_cast<std::uint32_t>(n)); };
  Value* result = b.constant(32, 0);
  if (third) result = b.ir.CreateShl(b.read(b.operand(op, 3), 32), 2 * to.bits);
  for (unsigned i = 0; i < 2; ++i) {
    Value* x = b.read(b.operand(op, 2 - i), 32);
    x = b.binary(Intrinsic::smax, x, limit(to.is_signed() ? -all / 2 : 0));
    x = b.binary(Intrinsic::smin, x, limit(to.is_signed() ? all / 2 - 1 : all - 1));
    x = b.ir.CreateAnd(x, limit(all - 1));
    result = b.ir.CreateOr(result, b.ir.CreateShl(x, std::uint64_t{i} * to.bits));
  }
  b.write(b.operand(op, 0), result);
}

constexpr VariantRow kConvertNarrowRows[] = {
    {"cvt.rna{,.satfinite}.tf32.f32", emit_tf32},
    {"cvt.{rn,rz}{,.satfinite}{,.relu}.tf32.f32", emit_tf32},
    {"cvt.rn.satfinite{,.relu}.{e4m3x2,e5m2x2}.{f32,f16x2}", emit_to_bytes},
    {"cvt.rn{,.relu}.f16x2.{e4m3x2,e5m2x2}", emit_from_bytes},
    {"cvt.pack.sat.{s16,u16}.s32", emit_pack_integers},
    {"cvt.pack.sat.{s8,u8}.s32.b32", emit_pack_integers},
};

}  // namespace

std::span<const VariantRow> narrow_convert_rows() { return kConvertNarrowRows; }

}  // namespace gpurun::emulated
