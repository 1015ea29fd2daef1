// setp, set, selp and slct (PTX ISA, sections 9.7.6 and 9.7.7).
#include "server/emulated/codegen/float_math.h"
#include "server/emulated/codegen/variant_table.h"

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

// The comparison that the first modifier names, of operands 1 and 2.
Value* compare(FunctionBuilder& b, const Operation& op) {
  for (const Comparison& known : kComparisons) {
    if (op.instruction.modifiers[0] != known.name) continue;
    if (op.type.is_float()) {
      Value* x = flush_if(b, op, b.read_floats(b.operand(op, 1), op.type)[0]);
      Value* y = flush_if(b, op, b.read_floats(b.operand(op, 2), op.type)[0]);
      return b.ir.CreateFCmp(known.of_float, x, y);
    }
    Value* x = b.read(b.operand(op, 1), op.type);
    Value* y = b.read(b.operand(op, 2), op.type);
    return b.ir.CreateICmp(op.type.is_signed() ? known.of_signed : known.of_unsigned, x, y);
  }
  b.refuse("unknown comparison");
  return b.constant(1, 0);
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

void emit_setp(FunctionBuilder& b, const Operation& op) {
  Value* result = compare(b, op);
  Value* first = combine(b, op, result);
  Value* second = combine(b, op, b.ir.CreateNot(result));
  const ptx::Operand& destination = b.operand(op, 0);
  b.write(destination, first);
  b.write_second(destination, second);
}

// True is all ones for integers, 1.0 for f32.
void emit_set(FunctionBuilder& b, const Operation& op) {
  Value* result = combine(b, op, compare(b, op));
  const std::uint64_t yes = op.first_type.is_float() ? 0x3f800000u : 0xffffffffu;
  b.write(b.operand(op, 0), b.ir.CreateSelect(result, b.constant(32, yes), b.constant(32, 0)));
}

void emit_selp(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 4, 4);
  Value* x = b.read(b.operand(op, 1), op.type.bits);
  Value* y = b.read(b.operand(op, 2), op.type.bits);
  b.write(b.operand(op, 0), b.ir.CreateSelect(b.read_predicate(b.operand(op, 3)), x, y));
}

// slct.dtype.ctype d, a, b, c: a when c >= 0, else b; NaN takes b.
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

constexpr VariantRow kRows[] = {
    {"setp.{eq,ne}{,.and,.or,.xor}.{b16,b32,b64}", emit_setp},
    {"setp.{eq,ne,lt,le,gt,ge}{,.and,.or,.xor}.{u16,u32,u64,s16,s32,s64}", emit_setp},
    {"setp.{lo,ls,hi,hs}{,.and,.or,.xor}.{u16,u32,u64}", emit_setp},
    {"setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}{,.and,.or,.xor}{,.ftz}.{f32,f16}",
     emit_setp},
    {"setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}{,.and,.or,.xor}.{f64,bf16}",
     emit_setp},
    {"set.{eq,ne}{,.and,.or,.xor}.{u32,s32,f32}.{b16,b32,b64}", emit_set},
    {"set.{eq,ne,lt,le,gt,ge}{,.and,.or,.xor}.{u32,s32,f32}.{u16,u32,u64,s16,s32,s64}", emit_set},
    {"set.{lo,ls,hi,hs}{,.and,.or,.xor}.{u32,s32,f32}.{u16,u32,u64}", emit_set},
    {"set.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}{,.and,.or,.xor}{,.ftz}"
     ".{u32,s32,f32}.f32",
     emit_set},
    {"set.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}{,.and,.or,.xor}.{u32,s32,f32}.f64",
     emit_set},
    {"selp.{b16,b32,b64,u16,u32,u64,s16,s32,s64,f32,f64}", emit_selp},
    {"slct.{b16,b32,b64,u16,u32,u64,s16,s32,s64,f32,f64}.s32", emit_slct},
    {"slct{,.ftz}.{b16,b32,b64,u16,u32,u64,s16,s32,s64,f32,f64}.f32", emit_slct},
};

}  // namespace

std::span<const VariantRow> compare_rows() { return kRows; }

}  // namespace gpurun::emulated
