// SIMD video instructions: arithmetic on the two halves or four bytes of a register (PTX ISA,
// section 9.7.19). Also the scalar shifts (9.7.18.2). Masks and selectors are left out, because no
// compiler emits them.
#include "emulated/codegen/function_builder.h"
#include "emulated/codegen/variant_table.h"

namespace gpurun::emulated {
namespace {

using llvm::Value;
namespace Intrinsic = llvm::Intrinsic;

struct VideoTypes {
  bool result_signed = false;
  bool a_signed = false;
  bool b_signed = false;
};

VideoTypes types_of(const Operation& op, bool with_result) {
  bool flags[3] = {false, false, false};
  std::size_t count = with_result ? 0 : 1;
  for (std::string_view modifier : op.instruction.modifiers) {
    if (count < 3 && (modifier == "u32" || modifier == "s32")) flags[count++] = modifier == "s32";
  }
  return {flags[0], flags[1], flags[2]};
}

// Lane `index` of a register in 32 bits.
Value* lane(FunctionBuilder& b, Value* word, unsigned index, unsigned bits, bool is_signed) {
  Value* part =
      b.ir.CreateTrunc(b.ir.CreateLShr(word, std::uint64_t{index} * bits), b.int_type(bits));
  return is_signed ? b.ir.CreateSExt(part, b.int_type(32)) : b.ir.CreateZExt(part, b.int_type(32));
}

Value* compared(FunctionBuilder& b, const Operation& op, Value* x, Value* y) {
  struct Comparison {
    std::string_view name;
    llvm::CmpInst::Predicate predicate;
  };
  using P = llvm::CmpInst;
  static constexpr Comparison kAll[] = {{"eq", P::ICMP_EQ},  {"ne", P::ICMP_NE},
                                        {"lt", P::ICMP_SLT}, {"le", P::ICMP_SLE},
                                        {"gt", P::ICMP_SGT}, {"ge", P::ICMP_SGE}};
  for (const Comparison& one : kAll) {
    if (op.has(one.name)) {
      return b.ir.CreateZExt(b.ir.CreateICmp(one.predicate, x, y), b.int_type(32));
    }
  }
  return b.constant(32, 0);
}

// One lane's result. It is exact, because lanes have at most 16 bits.
Value* combined(FunctionBuilder& b, const Operation& op, Value* x, Value* y) {
  const std::string_view opcode = op.instruction.opcode;
  const std::string_view name = opcode.substr(1, opcode.size() - 2);
  if (name == "add") return b.ir.CreateAdd(x, y);
  if (name == "sub") return b.ir.CreateSub(x, y);
  if (name == "min") return b.binary(Intrinsic::smin, x, y);
  if (name == "max") return b.binary(Intrinsic::smax, x, y);
  if (name == "absdiff") {
    return b.ir.CreateSub(b.binary(Intrinsic::smax, x, y), b.binary(Intrinsic::smin, x, y));
  }
  if (name == "set") return compared(b, op, x, y);
  // avrg: halves are rounded away from zero.
  Value* sum = b.ir.CreateAdd(x, y);
  Value* not_negative = b.ir.CreateICmpSGE(sum, b.constant(32, 0));
  return b.ir.CreateAShr(b.ir.CreateAdd(sum, b.ir.CreateZExt(not_negative, b.int_type(32))), 1);
}

Value* saturated(FunctionBuilder& b, Value* value, unsigned bits, bool is_signed) {
  const auto limit = [&](std::int64_t n) { return b.constant(32, static_cast<std::uint32_t>(n)); };
  const std::int64_t all = std::int64_t{1} << bits;
  value = b.binary(Intrinsic::smax, value, limit(is_signed ? -all / 2 : 0));
  return b.binary(Intrinsic::smin, value, limit(is_signed ? all / 2 - 1 : all - 1));
}

void emit_video(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 4, 4);
  const unsigned lanes = op.instruction.opcode.back() == '4' ? 4 : 2;
  const unsigned bits = 32 / lanes;
  const VideoTypes types = types_of(op, !op.instruction.opcode.starts_with("vset"));
  Value* x = b.read(b.operand(op, 1), 32);
  Value* y = b.read(b.operand(op, 2), 32);
  const bool add = op.has("add");
  Value* result = add ? b.read(b.operand(op, 3), 32) : b.constant(32, 0);
  if (b.failed()) return;
  for (unsigned i = 0; i < lanes; ++i) {
    Value* one =
        combined(b, op, lane(b, x, i, bits, types.a_signed), lane(b, y, i, bits, types.b_signed));
    if (op.has("sat")) one = saturated(b, one, bits, types.result_signed);
    if (add) {
      result = b.ir.CreateAdd(result, one);
    } else {
      one = b.ir.CreateAnd(one, b.constant(32, (std::uint64_t{1} << bits) - 1));
      result = b.ir.CreateOr(result, b.ir.CreateShl(one, std::uint64_t{i} * bits));
    }
  }
  b.write(b.operand(op, 0), result);
}

// vshl, vshr (PTX ISA, 9.7.18.2): a word, extended by its type, shifted by 32 at most (clamp) or by
// the low five bits (wrap). A secondary operation with the third operand follows, in d's type.
void emit_video_shift(FunctionBuilder& b, const Operation& op) {
  const bool secondary = op.has("add") || op.has("min") || op.has("max");
  b.expect_operands(op, secondary ? 4 : 3, secondary ? 4 : 3);
  const VideoTypes types = types_of(op, true);
  llvm::Type* wide = b.int_type(64);
  Value* word = b.read(b.operand(op, 1), 32);
  Value* by = b.read(b.operand(op, 2), 32);
  Value* third = secondary ? b.read(b.operand(op, 3), 32) : nullptr;
  if (b.failed()) return;
  word = types.a_signed ? b.ir.CreateSExt(word, wide) : b.ir.CreateZExt(word, wide);
  by = op.has("clamp") ? b.binary(Intrinsic::umin, by, b.constant(32, 32))
                       : b.ir.CreateAnd(by, b.constant(32, 31));
  by = b.ir.CreateZExt(by, wide);
  // Bits above the 64th after a shift by 32 are ignored.
  Value* moved =
      op.instruction.opcode == "vshl" ? b.ir.CreateShl(word, by) : b.ir.CreateAShr(word, by);
  if (op.has("sat")) {
    const std::int64_t low = types.result_signed ? -(std::int64_t{1} << 31) : 0;
    const std::int64_t high = (std::int64_t{1} << (types.result_signed ? 31 : 32)) - 1;
    moved = b.binary(Intrinsic::smax, moved, b.constant(64, static_cast<std::uint64_t>(low)));
    moved = b.binary(Intrinsic::smin, moved, b.constant(64, static_cast<std::uint64_t>(high)));
  }
  Value* result = b.ir.CreateTrunc(moved, b.int_type(32));
  if (op.has("add")) {
    result = b.ir.CreateAdd(result, third);
  } else if (secondary) {
    const bool least = op.has("min");
    result = b.binary(types.result_signed ? (least ? Intrinsic::smin : Intrinsic::smax)
                                          : (least ? Intrinsic::umin : Intrinsic::umax),
                      result, third);
  }
  b.write(b.operand(op, 0), result);
}

constexpr VariantRow kVideoRows[] = {
    {"vshl.{u32,s32}.{u32,s32}.u32.{clamp,wrap}{,.add,.min,.max}", emit_video_shift},
    {"vshr.{u32,s32}.{u32,s32}.u32{,.sat}.{clamp,wrap}{,.add,.min,.max}", emit_video_shift},
    {"{vadd4,vsub4,vavrg4,vabsdiff4,vmin4,vmax4,vadd2,vsub2,vavrg2,vabsdiff2,vmin2,vmax2}"
     ".{u32,s32}.{u32,s32}.{u32,s32}{,.sat,.add}",
     emit_video},
    {"{vset4,vset2}.{u32,s32}.{u32,s32}.{eq,ne,lt,le,gt,ge}{,.add}", emit_video},
};

}  // namespace

std::span<const VariantRow> video_rows() { return kVideoRows; }

}  // namespace gpurun::emulated
