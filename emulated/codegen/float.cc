// Floating-point arithmetic in all formats (PTX ISA, sections 9.7.3 to 9.7.5). NaN results keep the
// host's payload, while NVIDIA's devices give 0x7fffffff.
#include "emulated/codegen/float_math.h"
#include "emulated/codegen/variant_table.h"

namespace gpurun::emulated {
namespace {

using llvm::Value;
using ptx::FloatFormat;
namespace Intrinsic = llvm::Intrinsic;
using Lanes = llvm::SmallVector<Value*, 2>;

// Compiled code never changes the host's rounding mode. Directed rounding is a call.
Value* call_directed(FunctionBuilder& b, const std::string& operation, const char* mode,
                     llvm::ArrayRef<Value*> arguments) {
  llvm::Type* type = arguments[0]->getType();
  const std::string name =
      "gpurun_round_" + operation + (type->isDoubleTy() ? "_f64_" : "_f32_") + mode;
  return b.call_helper(name.c_str(), type, arguments, true);
}

Value* finish(FunctionBuilder& b, const Operation& op, Value* value) {
  value = flush_if(b, op, value);
  if (op.has("sat")) value = saturate(b, value);
  if (op.has("relu")) value = clamp_negative(b, value);
  return value;
}

Lanes read_flushed(FunctionBuilder& b, const Operation& op, std::size_t index) {
  Lanes lanes = b.read_floats(b.operand(op, index), op.type);
  for (Value*& value : lanes) value = flush_if(b, op, value);
  return lanes;
}

void emit_binary(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 3, 3);
  Lanes x = read_flushed(b, op, 1);
  Lanes y = read_flushed(b, op, 2);
  if (b.failed()) return;
  const char* mode = directed_rounding(op);
  const std::string opcode(op.instruction.opcode);
  for (std::size_t i = 0; i < x.size(); ++i) {
    Value* value = mode != nullptr ? call_directed(b, opcode, mode, {x[i], y[i]})
                                   : rounded_binary(b, opcode, op.type.format, x[i], y[i]);
    x[i] = finish(b, op, value);
  }
  b.write_floats(b.operand(op, 0), x, op.type);
}

void emit_fma(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 4, 4);
  Lanes x = read_flushed(b, op, 1);
  Lanes y = read_flushed(b, op, 2);
  Lanes z = read_flushed(b, op, 3);
  if (b.failed()) return;
  const char* mode = directed_rounding(op);
  for (std::size_t i = 0; i < x.size(); ++i) {
    Value* value = mode != nullptr ? call_directed(b, "fma", mode, {x[i], y[i], z[i]})
                                   : rounded_fma(b, op.type.format, x[i], y[i], z[i]);
    x[i] = finish(b, op, value);
  }
  b.write_floats(b.operand(op, 0), x, op.type);
}

// div.approx and div.full are rounded correctly, which is within their error bounds.
void emit_div(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 3, 3);
  Value* x = read_flushed(b, op, 1)[0];
  Value* y = read_flushed(b, op, 2)[0];
  if (b.failed()) return;
  const char* mode = directed_rounding(op);
  Value* value = mode != nullptr ? call_directed(b, "div", mode, {x, y}) : b.ir.CreateFDiv(x, y);
  b.write_floats(b.operand(op, 0), {finish(b, op, value)}, op.type);
}

void emit_rcp_sqrt(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 2);
  Value* x = read_flushed(b, op, 1)[0];
  if (b.failed()) return;
  const char* mode = directed_rounding(op);
  const bool rcp = op.instruction.opcode == "rcp";
  Value* one = llvm::ConstantFP::get(x->getType(), 1.0);
  Value* value = nullptr;
  if (mode != nullptr) {
    value = rcp ? call_directed(b, "div", mode, {one, x}) : call_directed(b, "sqrt", mode, {x});
  } else {
    value = rcp ? b.ir.CreateFDiv(one, x) : b.unary(Intrinsic::sqrt, x);
  }
  b.write_floats(b.operand(op, 0), {finish(b, op, value)}, op.type);
}

void emit_neg_abs(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 2);
  Lanes x = read_flushed(b, op, 1);
  if (b.failed()) return;
  for (Value*& value : x) {
    value =
        op.instruction.opcode == "neg" ? b.ir.CreateFNeg(value) : b.unary(Intrinsic::fabs, value);
  }
  b.write_floats(b.operand(op, 0), x, op.type);
}

void emit_min_max(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 3, 4);
  Lanes x = read_flushed(b, op, 1);
  const bool minimum = op.instruction.opcode == "min";
  for (std::size_t k = 2; k < op.operand_count(); ++k) {
    Lanes y = read_flushed(b, op, k);
    if (b.failed()) return;
    for (std::size_t i = 0; i < x.size(); ++i) {
      Value* left = x[i];
      Value* right = y[i];
      if (!op.has("xorsign")) {
        x[i] = minimum_maximum(b, minimum, op.has("NaN"), left, right);
        continue;
      }
      // .xorsign.abs: the magnitude's minimum or maximum with the product's sign.
      llvm::IntegerType* bits =
          b.int_type(static_cast<unsigned>(left->getType()->getPrimitiveSizeInBits()));
      Value* signs = b.ir.CreateBitCast(
          b.ir.CreateXor(b.ir.CreateBitCast(left, bits), b.ir.CreateBitCast(right, bits)),
          left->getType());
      Value* magnitude = minimum_maximum(b, minimum, op.has("NaN"), b.unary(Intrinsic::fabs, left),
                                         b.unary(Intrinsic::fabs, right));
      x[i] = b.binary(Intrinsic::copysign, magnitude, signs);
    }
  }
  b.write_floats(b.operand(op, 0), x, op.type);
}

// copysign d, a, b: the sign of a on the magnitude of b.
void emit_copysign(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 3, 3);
  Value* sign = b.read_floats(b.operand(op, 1), op.type)[0];
  Value* magnitude = b.read_floats(b.operand(op, 2), op.type)[0];
  b.write_floats(b.operand(op, 0), {b.binary(Intrinsic::copysign, magnitude, sign)}, op.type);
}

void emit_testp(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 2);
  struct Test {
    std::string_view name;
    unsigned mask;
  };
  const Test tests[] = {{"finite", llvm::fcFinite},
                        {"infinite", llvm::fcInf},
                        {"number", llvm::fcAllFlags & ~llvm::fcNan},
                        {"notanumber", llvm::fcNan},
                        {"normal", llvm::fcNormal},
                        {"subnormal", llvm::fcSubnormal}};
  Value* x = b.read_floats(b.operand(op, 1), op.type)[0];
  for (const Test& test : tests) {
    if (!op.has(test.name)) continue;
    b.write(b.operand(op, 0),
            b.intrinsic(Intrinsic::is_fpclass, {x, b.constant(32, test.mask)}, {x->getType()}));
  }
}

constexpr VariantRow kFloatRows[] = {
    {"{add,sub,mul}{,.rn,.rz,.rm,.rp}{,.ftz}{,.sat}.f32", emit_binary},
    {"{add,sub,mul}{,.rn,.rz,.rm,.rp}.f64", emit_binary},
    {"{add,sub,mul}{,.rn}{,.ftz}{,.sat}.{f16,f16x2}", emit_binary},
    {"{add,sub,mul}{,.rn}.{bf16,bf16x2}", emit_binary},
    {"{add,sub,mul}{,.rn,.rz,.rm,.rp}{,.ftz}.f32x2", emit_binary},
    {"{fma,mad}.{rn,rz,rm,rp}{,.ftz}{,.sat}.f32", emit_fma},
    {"{fma,mad}.{rn,rz,rm,rp}.f64", emit_fma},
    {"fma.{rn,rz,rm,rp}{,.ftz}.f32x2", emit_fma},
    {"fma.rn{,.ftz}{,.sat,.relu}.{f16,f16x2}", emit_fma},
    {"fma.rn{,.relu}.{bf16,bf16x2}", emit_fma},
    {"div.{approx,full}{,.ftz}.f32", emit_div},
    {"div.{rn,rz,rm,rp}{,.ftz}.f32", emit_div},
    {"div.{rn,rz,rm,rp}.f64", emit_div},
    {"{rcp,sqrt}.{approx,rn,rz,rm,rp}{,.ftz}.f32", emit_rcp_sqrt},
    {"{rcp,sqrt}.{rn,rz,rm,rp}.f64", emit_rcp_sqrt},
    {"rcp.approx.ftz.f64", emit_rcp_sqrt},
    {"{neg,abs}{,.ftz}.{f32,f16,f16x2}", emit_neg_abs},
    {"{neg,abs}.{f64,bf16,bf16x2}", emit_neg_abs},
    {"{min,max}{,.ftz}{,.NaN}{,.xorsign.abs}.{f32,f16,f16x2}", emit_min_max},
    {"{min,max}.f64", emit_min_max},
    {"{min,max}{,.NaN}{,.xorsign.abs}.{bf16,bf16x2}", emit_min_max},
    {"copysign.{f32,f64}", emit_copysign},
    {"testp.{finite,infinite,number,notanumber,normal,subnormal}.{f32,f64}", emit_testp},
};

}  // namespace

std::span<const VariantRow> float_rows() { return kFloatRows; }

}  // namespace gpurun::emulated
