// ldmatrix, stmatrix, mma and wmma (PTX ISA, section 9.7.14). Fragments go to the frame, and
// functions of runtime/matrix_functions.h do the work.
#include <charconv>

#include "emulated/codegen/function_builder.h"
#include "emulated/codegen/variant_table.h"
#include "emulated/codegen/warp_call.h"
#include "emulated/runtime/matrix_functions.h"

namespace gpurun::emulated {
namespace {

using llvm::Value;
using Values = llvm::SmallVector<Value*, kWarpInputWordsMax>;

struct NamedFormat {
  std::string_view name;
  MatrixFormat format;
};
constexpr NamedFormat kFormats[] = {
    {"f16", MatrixFormat::kF16},   {"bf16", MatrixFormat::kBf16}, {"tf32", MatrixFormat::kTf32},
    {"f32", MatrixFormat::kF32},   {"f64", MatrixFormat::kF64},   {"e4m3", MatrixFormat::kE4m3},
    {"e5m2", MatrixFormat::kE5m2}, {"s8", MatrixFormat::kS8},     {"u8", MatrixFormat::kU8},
    {"s4", MatrixFormat::kS4},     {"u4", MatrixFormat::kU4},     {"b1", MatrixFormat::kB1},
    {"s32", MatrixFormat::kS32},
};

// "m16n8k32"
bool parse_extents(std::string_view text, MatrixShape* shape) {
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&](char letter, auto* out) {
    if (at == end || *at != letter) return false;
    const auto parsed = std::from_chars(at + 1, end, *out);
    at = parsed.ptr;
    return parsed.ec == std::errc();
  };
  return number('m', &shape->m) && number('n', &shape->n) && number('k', &shape->k);
}

struct Modifiers {
  MatrixShape shape;
  llvm::SmallVector<MatrixFormat, 4> formats;
  MatrixOrder order = MatrixOrder::kRow;  // The first one.
  ptx::Space space = ptx::Space::kNone;
};

Modifiers parse_modifiers(const Operation& op) {
  Modifiers out;
  bool ordered = false;
  for (std::string_view modifier : op.instruction.modifiers) {
    MatrixShape extents;
    if (parse_extents(modifier, &extents)) out.shape = extents;
    for (const NamedFormat& known : kFormats) {
      if (known.name == modifier) out.formats.push_back(known.format);
    }
    if (!ordered && (modifier == "row" || modifier == "col")) {
      ordered = true;
      out.order = modifier == "row" ? MatrixOrder::kRow : MatrixOrder::kColumn;
    }
    if (const ptx::Space space = ptx::parse_space(modifier); space != ptx::Space::kNone) {
      out.space = space;
    }
  }
  out.shape.saturate = op.has("satfinite");
  out.shape.exclusive = op.has("xor");
  return out;
}

// 32-bit words of a fragment. An f64 register gives two.
void read_fragment(FunctionBuilder& b, const ptx::Operand& operand, unsigned words, bool wide,
                   Values& out) {
  if (operand.parts.size() * (wide ? 2 : 1) != words) {
    return b.refuse("a fragment has another number of registers");
  }
  for (const ptx::Operand& part : operand.parts) {
    if (!wide) {
      out.push_back(b.read(part, 32));
      continue;
    }
    Value* value = b.read(part, 64);
    out.push_back(b.ir.CreateTrunc(value, b.int_type(32)));
    out.push_back(b.ir.CreateTrunc(b.ir.CreateLShr(value, 32), b.int_type(32)));
  }
}

void write_fragment(FunctionBuilder& b, const ptx::Operand& operand, llvm::ArrayRef<Value*> words,
                    bool wide) {
  if (operand.parts.size() * (wide ? 2 : 1) != words.size()) {
    return b.refuse("a fragment has another number of registers");
  }
  for (std::size_t i = 0; i < operand.parts.size(); ++i) {
    if (!wide) {
      b.write(operand.parts[i], words[i]);
      continue;
    }
    Value* low = b.ir.CreateZExt(words[2 * i], b.int_type(64));
    Value* high = b.ir.CreateZExt(words[2 * i + 1], b.int_type(64));
    b.write(operand.parts[i], b.ir.CreateOr(low, b.ir.CreateShl(high, 32)));
  }
}

Value* full_warp(FunctionBuilder& b) { return b.constant(32, 0xffffffffu); }

void emit_mma(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 4, 4);
  Modifiers modifiers = parse_modifiers(op);
  MatrixShape& shape = modifiers.shape;
  const auto& formats = modifiers.formats;
  shape.wmma = op.instruction.opcode == "wmma";
  if (formats.size() == 4) {
    shape.d = formats[0];
    shape.a = formats[1];
    shape.b = formats[2];
    shape.c = formats[3];
  } else if (formats.size() == 2) {  // wmma of f16 names only D and C.
    shape.d = formats[0];
    shape.c = formats[1];
    shape.a = shape.b = MatrixFormat::kF16;
  } else {
    return b.refuse("two or four types expected");
  }
  const std::uint64_t code = shape.packed();
  Values in{b.constant(32, code & 0xffffffffu), b.constant(32, code >> 32)};
  const bool wide = shape.a == MatrixFormat::kF64;
  for (std::size_t i = 0; i < 3; ++i) {
    read_fragment(b, b.operand(op, i + 1), shape.words("abc"[i]), wide, in);
  }
  if (b.failed()) return;
  write_fragment(b, b.operand(op, 0),
                 call_warp(b, op, full_warp(b), "gpurun_warp_mma", in, shape.words('d')), wide);
}

void add_address(FunctionBuilder& b, Value* pointer, Values& out) {
  Value* address = b.ir.CreatePtrToInt(pointer, b.int_type(64));
  out.push_back(b.ir.CreateTrunc(address, b.int_type(32)));
  out.push_back(b.ir.CreateTrunc(b.ir.CreateLShr(address, 32), b.int_type(32)));
}

void emit_matrix_move(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 2);
  const bool load = op.instruction.opcode == "ldmatrix";
  const unsigned count = op.has("x4") ? 4 : op.has("x2") ? 2 : 1;
  Values in{b.constant(32, count | (op.has("trans") ? 0x100u : 0u))};
  add_address(b, b.address(b.operand(op, load ? 1 : 0), parse_modifiers(op).space), in);
  if (load) {
    write_fragment(b, b.operand(op, 0),
                   call_warp(b, op, full_warp(b), "gpurun_warp_ldmatrix", in, count), false);
  } else {
    read_fragment(b, b.operand(op, 1), count, false, in);
    if (!b.failed()) call_warp(b, op, full_warp(b), "gpurun_warp_stmatrix", in, 0);
  }
}

void emit_movmatrix(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 2);
  Value* word = b.read(b.operand(op, 1), 32);
  b.write(b.operand(op, 0), call_warp(b, op, full_warp(b), "gpurun_warp_movmatrix", {word}, 1)[0]);
}

// wmma.load.x and wmma.store.d. Every lane moves its own elements, so the warp need not converge.
void emit_wmma_move(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 3);
  const bool load = op.has("load");
  Modifiers modifiers = parse_modifiers(op);
  MatrixShape& shape = modifiers.shape;
  if (modifiers.formats.size() != 1) return b.refuse("one type expected");
  shape.wmma = true;
  shape.a = shape.b = shape.c = shape.d = modifiers.formats[0];
  const char name = !load ? 'd' : op.has("a") ? 'a' : op.has("b") ? 'b' : 'c';
  const unsigned rows = name == 'b' ? shape.k : shape.m;
  const unsigned columns = name == 'a' ? shape.k : shape.n;
  Value* stride = op.operand_count() == 3
                      ? b.read(b.operand(op, 2), 32)
                      : b.constant(32, modifiers.order == MatrixOrder::kRow ? columns : rows);
  Value* memory = b.address(b.operand(op, load ? 1 : 0), modifiers.space);
  const bool wide = shape.a == MatrixFormat::kF64;
  const unsigned words = shape.words(name);
  Value* frame = b.warp_words();
  const auto word = [&](unsigned i) {
    return b.ir.CreateConstInBoundsGEP1_64(b.int_type(32), frame, i);
  };
  Values values;
  if (!load) read_fragment(b, b.operand(op, 1), words, wide, values);
  if (b.failed()) return;
  for (unsigned i = 0; i < values.size(); ++i) b.ir.CreateStore(values[i], word(i));
  b.call_helper(load ? "gpurun_wmma_load" : "gpurun_wmma_store", llvm::Type::getVoidTy(b.context()),
                {memory, stride, b.constant(32, static_cast<std::uint32_t>(modifiers.order)),
                 b.constant(64, shape.packed()), b.constant(32, static_cast<unsigned>(name)),
                 b.lane(), frame},
                false);
  if (!load) return;
  for (unsigned i = 0; i < words; ++i) {
    values.push_back(b.ir.CreateLoad(b.int_type(32), word(i)));
  }
  write_fragment(b, b.operand(op, 0), values, wide);
}

#define GPURUN_WMMA_16 "{m16n16k16,m8n32k16,m32n8k16}"
#define GPURUN_WMMA_SPACE "{,.global,.shared}"

constexpr VariantRow kMatrixRows[] = {
    {"{ldmatrix,stmatrix}.sync.m8n8.{x1,x2,x4}{,.trans}{,.shared}.b16", emit_matrix_move},
    {"movmatrix.sync.m8n8.trans.b16", emit_movmatrix},
    {"mma.sync.{m16n8k8,m16n8k16}.row.col.{f16.f16.f16.f16,f32.f16.f16.f32,f32.bf16.bf16.f32}",
     emit_mma},
    {"mma.sync.{m16n8k4,m16n8k8}.row.col.f32.tf32.tf32.f32", emit_mma},
    {"mma.sync.{m16n8k16,m16n8k32}.row.col.f32.{e4m3,e5m2}.{e4m3,e5m2}.f32", emit_mma},
    {"mma.sync.{m16n8k16,m16n8k32}.row.col.f16.{e4m3,e5m2}.{e4m3,e5m2}.f16", emit_mma},
    {"mma.sync.{m8n8k4,m16n8k4,m16n8k8,m16n8k16}.row.col{,.rn}.f64.f64.f64.f64", emit_mma},
    {"mma.sync.{m8n8k16,m16n8k16,m16n8k32}.row.col{,.satfinite}.s32.{s8,u8}.{s8,u8}.s32", emit_mma},
    {"mma.sync.{m8n8k32,m16n8k32,m16n8k64}.row.col{,.satfinite}.s32.{s4,u4}.{s4,u4}.s32", emit_mma},
    {"mma.sync.{m8n8k128,m16n8k128,m16n8k256}.row.col.s32.b1.b1.s32.{xor,and}.popc", emit_mma},
    {"wmma.mma.sync.{row,col}.{row,col}." GPURUN_WMMA_16 ".{f16,f32}.{f16,f32}", emit_mma},
    {"wmma.mma.sync.{row,col}.{row,col}." GPURUN_WMMA_16 ".f32.bf16.bf16.f32", emit_mma},
    {"wmma.mma.sync.{row,col}.{row,col}." GPURUN_WMMA_16 ".s32.{s8.s8,u8.u8}.s32{,.satfinite}",
     emit_mma},
    {"wmma.mma.sync.{row,col}.{row,col}.m16n16k8.f32.tf32.tf32.f32", emit_mma},
    {"wmma.mma.sync.{row,col}.{row,col}.m8n8k4{,.rn}.f64.f64.f64.f64", emit_mma},
    {"wmma.mma.sync.row.col.m8n8k32.s32.{s4.s4,u4.u4}.s32{,.satfinite}", emit_mma},
    {"wmma.mma.{xor,and}.popc.sync.row.col.m8n8k128.s32.b1.b1.s32", emit_mma},
    {"wmma.load.{a,b}.sync.{row,col}." GPURUN_WMMA_16 GPURUN_WMMA_SPACE ".{f16,bf16,s8,u8}",
     emit_wmma_move},
    {"wmma.load.{a,b}.sync.{row,col}.m16n16k8" GPURUN_WMMA_SPACE ".tf32", emit_wmma_move},
    {"wmma.load.{a,b,c}.sync.{row,col}.m8n8k4" GPURUN_WMMA_SPACE ".f64", emit_wmma_move},
    {"wmma.load.{a.sync.row,b.sync.col}.m8n8k32" GPURUN_WMMA_SPACE ".{s4,u4}", emit_wmma_move},
    {"wmma.load.{a.sync.row,b.sync.col}.m8n8k128" GPURUN_WMMA_SPACE ".b1", emit_wmma_move},
    {"wmma.{load.c,store.d}.sync.{row,col}." GPURUN_WMMA_16 GPURUN_WMMA_SPACE ".{f16,f32,s32}",
     emit_wmma_move},
    {"wmma.{load.c,store.d}.sync.{row,col}.m16n16k8" GPURUN_WMMA_SPACE ".f32", emit_wmma_move},
    {"wmma.store.d.sync.{row,col}.m8n8k4" GPURUN_WMMA_SPACE ".f64", emit_wmma_move},
    {"wmma.{load.c,store.d}.sync.{row,col}.{m8n8k32,m8n8k128}" GPURUN_WMMA_SPACE ".s32",
     emit_wmma_move},
};

}  // namespace

std::span<const VariantRow> matrix_rows() { return kMatrixRows; }

}  // namespace gpurun::emulated
