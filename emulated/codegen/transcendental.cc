// Approximate functions (PTX ISA, section 9.7.3), computed with the host's math library. It is
// within the documented error bounds.
#include "emulated/codegen/float_math.h"
#include "emulated/codegen/variant_table.h"

namespace gpurun::emulated {
namespace {

using llvm::Value;

Value* reciprocal_root(FunctionBuilder& b, Value* x) {
  return b.ir.CreateFDiv(llvm::ConstantFP::get(x->getType(), 1.0),
                         b.unary(llvm::Intrinsic::sqrt, x));
}

void emit_function(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 2);
  struct Named {
    std::string_view opcode;
    const char* helper;
  };
  constexpr Named kHelpers[] = {
      {"ex2", "exp2f"}, {"lg2", "log2f"}, {"sin", "sinf"}, {"cos", "cosf"}, {"tanh", "tanhf"}};
  auto lanes = b.read_floats(b.operand(op, 1), op.type);
  for (Value*& x : lanes) {
    x = flush_if(b, op, x);
    if (op.instruction.opcode == "rsqrt") {
      x = reciprocal_root(b, x);
    } else {
      for (const Named& known : kHelpers) {
        if (op.instruction.opcode != known.opcode) continue;
        x = b.call_helper(known.helper, b.float_type(), {x}, true);
        break;
      }
    }
    x = flush_if(b, op, round_to(b, x, op.type.format));
  }
  b.write_floats(b.operand(op, 0), lanes, op.type);
}

constexpr VariantRow kTranscendentalRows[] = {
    {"{ex2,lg2,sin,cos,rsqrt}.approx{,.ftz}.f32", emit_function},
    {"rsqrt.approx{,.ftz}.f64", emit_function},
    {"tanh.approx.{f32,f16,f16x2,bf16,bf16x2}", emit_function},
    {"ex2.approx.{f16,f16x2}", emit_function},
    {"ex2.approx.ftz.{bf16,bf16x2}", emit_function},
};

}  // namespace

std::span<const VariantRow> math_rows() { return kTranscendentalRows; }

}  // namespace gpurun::emulated
