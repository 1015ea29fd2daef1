// setp, set, selp and slct (PTX ISA, sections 9.7.6 and 9.7.7).
#include "emulated/codegen/float_math.h"
#include "emulated/codegen/variant_table.h"

namespace gpurun::emulated {
namespace {

using llvm::CmpInst;
using llvm::Value;

struct Comparison {
  std::string_view name;
  CmpInst::Predicate of_signed;
  CmpInst::Predicate of_unsigned;
  CmpInst::Predicate of_float;  // Unordered forms have no integer meaning.
};

constexpr CmpInst::Predicate kNever = CmpInst::BAD_ICMP_PREDICATE;

constexpr Comparison kComparisons[] = {
    {"eq", CmpInst::ICMP_EQ, CmpInst::ICMP_EQ, CmpInst::FCMP_OEQ},
    {"ne", CmpInst::ICMP_NE, CmpInst::ICMP_NE, CmpInst::FCMP_ONE},
    {"lt", CmpInst::ICMP_SLT, CmpInst::ICMP_ULT, CmpInst::FCMP_OLT},
    {"le", CmpInst::ICMP_SLE, CmpInst::ICMP_ULE, CmpInst::FCMP_OLE},
    {"gt", CmpInst::ICMP_SGT, CmpInst::ICMP_UGT, CmpInst::FCMP_OGT},
    {"ge", CmpInst::ICMP_SGE, CmpInst::ICMP_UGE, CmpInst::FCMP_OGE},
    {"lo", CmpInst::ICMP_ULT, CmpInst::ICMP_ULT, kNever},
    {"ls", CmpInst::ICMP_ULE, CmpInst::ICMP_ULE, kNever},
    {"hi", CmpInst::ICMP_UGT, CmpInst::ICMP_UGT, kNever},
    {"hs", CmpInst::ICMP_UGE, CmpInst::ICMP_UGE, kNever},
    {"equ", kNever, kNever, CmpInst::FCMP_UEQ},
    {"neu", kNever, kNever, CmpInst::FCMP_UNE},
    {"ltu", kNever, kNever, CmpInst::FCMP_ULT},
    {"leu", kNever, kNever, CmpInst::FCMP_ULE},
    {"gtu", kNever, kNever, CmpInst::FCMP_UGT},
    {"geu", kNever, kNever, CmpInst::FCMP_UGE},
    {"num", kNever, kNever, CmpInst::FCMP_ORD},
    {"nan", kNever, kNever, CmpInst::FCMP_UNO},
};

using Lanes = llvm::SmallVector<Value*, 2>;

// The comparison that a modifier names, of operands 1 and 2. Two results for packed types.
Lanes compare(FunctionBuilder& b, const Operation& op) {
  for (const Comparison& known : kComparisons) {
    if (!op.has(known.name)) continue;
    if (!op.type.is_float()) {
      Value* x = b.read(b.operand(op, 1), op.type);
      Value* y = b.read(b.operand(op, 2), op.type);
      return {b.ir.CreateICmp(op.type.is_signed() ? known.of_signed : known.of_unsigned, x, y)};
    }
    const auto x = b.read_floats(b.operand(op, 1), op.type);
    const auto y = b.read_floats(b.operand(op, 2), op.type);
    Lanes results;
    for (std::size_t i = 0; i < x.size(); ++i) {
      results.push_back(
          b.ir.CreateFCmp(known.of_float, flush_if(b, op, x[i]), flush_if(b, op, y[i])));
    }
    return results;
  }
  b.refuse("unknown comparison");
  return {b.constant(1, 0)};
}

// The result combined with the predicate operand when the instruction has a .BoolOp.
Value* combine(FunctionBuilder& b, const Operation& op, Value* result) {
  const bool combines = op.has("and") || op.has("or") || op.has("xor");
  b.expect_operands(op, combines ? 4 : 3, combines ? 4 : 3);
  if (!combines) return result;
  Value* other = b.read_predicate(b.operand(op, 3));
  if (op.has("and")) return b.ir.CreateAnd(result, other);
  return op.has("or") ? b.ir.CreateOr(result, other) : b.ir.CreateXor(result, other);
}

// The second predicate is the opposite, or for packed types the result of the high halves.
void emit_setp(FunctionBuilder& b, const Operation& op) {
  const Lanes results = compare(b, op);
  Value* first = combine(b, op, results[0]);
  Value* second = combine(b, op, results.size() == 2 ? results[1] : b.ir.CreateNot(results[0]));
  const ptx::Operand& destination = b.operand(op, 0);
  b.write(destination, first);
  b.write_second(destination, second);
}

// True is all ones for integers and 1.0 for floats. Packed types have such a half for each
// comparison.
void emit_set(FunctionBuilder& b, const Operation& op) {
  const Lanes results = compare(b, op);
  const auto lanes = static_cast<unsigned>(results.size());
  const unsigned bits = op.first_type.bits / lanes;
  std::uint64_t yes = bits == 16 ? 0xffff : 0xffffffff;
  switch (scalar_format(op.first_type.format)) {
    case ptx::FloatFormat::kF16:
      yes = 0x3c00;
      break;
    case ptx::FloatFormat::kBf16:
      yes = 0x3f80;
      break;
    case ptx::FloatFormat::kF32:
      yes = 0x3f800000;
      break;
    default:
      break;
  }
  Value* all = b.constant(op.first_type.bits, 0);
  for (unsigned i = 0; i < lanes; ++i) {
    Value* lane = b.constant(op.first_type.bits, yes << (i * bits));
    all = b.ir.CreateOr(all, b.ir.CreateSelect(combine(b, op, results[i]), lane,
                                               b.constant(op.first_type.bits, 0)));
  }
  b.write(b.operand(op, 0), all, op.first_type.is_signed());
}

void emit_selp(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 4, 4);
  Value* x = b.read(b.operand(op, 1), op.type.bits);
  Value* y = b.read(b.operand(op, 2), op.type.bits);
  b.write(b.operand(op, 0), b.ir.CreateSelect(b.read_predicate(b.operand(op, 3)), x, y));
}

// slct.dtype.ctype d, a, b, c: a when c >= 0, else b. NaN takes b.
void emit_slct(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 4, 4);
  Value* x = b.read(b.operand(op, 1), op.first_type.bits);
  Value* y = b.read(b.operand(op, 2), op.first_type.bits);
  Value* control = nullptr;
  if (op.type.is_float()) {
    Value* c = flush_if(b, op, b.read_floats(b.operand(op, 3), op.type)[0]);
    control = b.ir.CreateFCmpOGE(c, llvm::ConstantFP::get(c->getType(), 0));
  } else {
    control = b.ir.CreateICmpSGE(b.read(b.operand(op, 3), 32), b.constant(32, 0));
  }
  b.write(b.operand(op, 0), b.ir.CreateSelect(control, x, y));
}

#define GPURUN_FLOAT_COMPARISONS "{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}"
#define GPURUN_COMBINED "{,.and,.or,.xor}"

constexpr VariantRow kCompareRows[] = {
    {"setp.{eq,ne}{,.and,.or,.xor}.{b16,b32,b64}", emit_setp},
    {"setp.{eq,ne,lt,le,gt,ge}{,.and,.or,.xor}.{u16,u32,u64,s16,s32,s64}", emit_setp},
    {"setp.{lo,ls,hi,hs}{,.and,.or,.xor}.{u16,u32,u64}", emit_setp},
    {"setp." GPURUN_FLOAT_COMPARISONS GPURUN_COMBINED "{,.ftz}.{f32,f16}", emit_setp},
    {"setp." GPURUN_FLOAT_COMPARISONS GPURUN_COMBINED ".{f64,bf16}", emit_setp},
    {"set.{eq,ne}{,.and,.or,.xor}.{u32,s32,f32}.{b16,b32,b64}", emit_set},
    {"set.{eq,ne,lt,le,gt,ge}{,.and,.or,.xor}.{u32,s32,f32}.{u16,u32,u64,s16,s32,s64}", emit_set},
    {"set.{lo,ls,hi,hs}{,.and,.or,.xor}.{u32,s32,f32}.{u16,u32,u64}", emit_set},
    {"set." GPURUN_FLOAT_COMPARISONS GPURUN_COMBINED "{,.ftz}"
     ".{u32,s32,f32}.f32",
     emit_set},
    {"set." GPURUN_FLOAT_COMPARISONS GPURUN_COMBINED ".{u32,s32,f32}.f64", emit_set},
    {"set." GPURUN_FLOAT_COMPARISONS GPURUN_COMBINED "{,.ftz}.{f16,u16,s16,u32,s32}.f16", emit_set},
    {"set." GPURUN_FLOAT_COMPARISONS GPURUN_COMBINED ".{bf16,u16,s16,u32,s32}.bf16", emit_set},
    {"set." GPURUN_FLOAT_COMPARISONS GPURUN_COMBINED "{,.ftz}.{f16x2,u32,s32}.f16x2", emit_set},
    {"set." GPURUN_FLOAT_COMPARISONS GPURUN_COMBINED ".{bf16x2,u32,s32}.bf16x2", emit_set},
    {"setp." GPURUN_FLOAT_COMPARISONS GPURUN_COMBINED "{,.ftz}.f16x2", emit_setp},
    {"setp." GPURUN_FLOAT_COMPARISONS GPURUN_COMBINED ".bf16x2", emit_setp},
    {"selp.{b16,b32,b64,u16,u32,u64,s16,s32,s64,f32,f64}", emit_selp},
    {"slct.{b16,b32,b64,u16,u32,u64,s16,s32,s64,f32,f64}.s32", emit_slct},
    {"slct{,.ftz}.{b16,b32,b64,u16,u32,u64,s16,s32,s64,f32,f64}.f32", emit_slct},
};

}  // namespace

std::span<const VariantRow> compare_rows() { return kCompareRows; }

}  // namespace gpurun::emulated
