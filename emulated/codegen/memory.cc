// Loads, stores, moves and address conversion (PTX ISA, section 9.7.9).
#include "emulated/codegen/function_builder.h"
#include "emulated/codegen/variant_table.h"
#include "emulated/runtime/device_abi.h"

namespace gpurun::emulated {
namespace {

using llvm::Value;

ptx::Space space_of(const Operation& op) {
  for (std::string_view modifier : op.instruction.modifiers) {
    const ptx::Space space = ptx::parse_space(modifier);
    if (space != ptx::Space::kNone) return space;
  }
  return ptx::Space::kNone;
}

unsigned vector_length(const Operation& op) {
  if (op.has("v2")) return 2;
  if (op.has("v8")) return 8;
  return op.has("v4") ? 4 : 1;
}

// The ordering of an access. Parts of a vector are ordered one by one.
struct Ordering {
  bool is_volatile = false;
  llvm::AtomicOrdering order = llvm::AtomicOrdering::NotAtomic;
};

Ordering ordering_of(const Operation& op) {
  // Only its own thread reaches local memory.
  if (op.has("volatile") && op.has("local")) return {true, llvm::AtomicOrdering::NotAtomic};
  if (op.has("volatile")) return {true, llvm::AtomicOrdering::Monotonic};
  if (op.has("relaxed")) return {false, llvm::AtomicOrdering::Monotonic};
  if (op.has("acquire")) return {false, llvm::AtomicOrdering::Acquire};
  if (op.has("release")) return {false, llvm::AtomicOrdering::Release};
  return {};
}

// Plain accesses are not assumed aligned, because a misaligned one must not become undefined
// behaviour.
template <class Access>
void order(Access* access, const Ordering& ordering, unsigned bytes) {
  access->setVolatile(ordering.is_volatile);
  access->setAlignment(llvm::Align(1));
  if (ordering.order == llvm::AtomicOrdering::NotAtomic) return;
  access->setAlignment(llvm::Align(bytes));
  access->setAtomic(ordering.order);
}

const ptx::Operand& part(FunctionBuilder& b, const ptx::Operand& operand, unsigned count,
                         unsigned index) {
  if (count == 1) return operand;
  if (operand.kind == ptx::Operand::Kind::kVector && operand.parts.size() == count) {
    return operand.parts[index];
  }
  b.refuse("the vector has another length than the access");
  return operand;
}

bool is_kernel_parameter(FunctionBuilder& b, const ptx::Operand& memory) {
  if (!b.is_entry() || memory.parts.empty()) return false;
  const ptx::Operand& base = memory.parts[0];
  return base.kind == ptx::Operand::Kind::kVariable &&
         base.index < b.function().signature.parameters.size();
}

void step_together(FunctionBuilder& b, bool is_load) {
  b.call_runtime("step_together", llvm::Type::getVoidTy(b.context()),
                 {b.position(), b.constant(32, is_load ? 1 : 0)});
}

// Called before an ordered access. Converged lanes make volatile and relaxed accesses of shared
// memory together. Every other ordered load may be a poll.
void come_to_access(FunctionBuilder& b, const Operation& op, Value* address, bool is_load) {
  const llvm::AtomicOrdering order = ordering_of(op).order;
  if (order == llvm::AtomicOrdering::NotAtomic || b.failed()) return;
  const ptx::Space space = space_of(op);
  const bool steps = order == llvm::AtomicOrdering::Monotonic;
  if (steps && space == ptx::Space::kShared) return step_together(b, is_load);
  if (!steps || space != ptx::Space::kNone) {
    if (is_load) b.poll();
    return;
  }
  llvm::BasicBlock* shared = b.new_block();
  llvm::BasicBlock* other = b.new_block();
  llvm::BasicBlock* next = b.new_block();
  Value* generic = b.ir.CreatePtrToInt(address, b.int_type(64));
  b.ir.CreateCondBr(b.in_shared(generic), shared, other);
  b.ir.SetInsertPoint(shared);
  step_together(b, is_load);
  b.ir.CreateBr(next);
  b.ir.SetInsertPoint(other);
  if (is_load) b.poll();
  b.ir.CreateBr(next);
  b.ir.SetInsertPoint(next);
}

bool is_wide_atomic(const Operation& op) {
  return op.type.bits == 128 && ordering_of(op).order != llvm::AtomicOrdering::NotAtomic;
}

// An ordered access of 16 bytes is atomic as a whole. LLVM would call a library that is not here,
// so it is a function of emulated/runtime/wide_atomics.h. One host thread runs a block at a time
// (device_abi.h), so nothing comes between the halves of an access of shared memory.
Value* load_wide(FunctionBuilder& b, const Operation& op, Value* address) {
  if (space_of(op) != ptx::Space::kShared) {
    Value* words = b.stack_slot(b.int_type(128));
    b.call_helper("gpurun_wide_load", llvm::Type::getVoidTy(b.context()), {address, words}, false);
    return b.ir.CreateAlignedLoad(b.int_type(128), words, llvm::Align(16));
  }
  Value* whole = b.constant(128, 0);
  for (unsigned i = 0; i < 2; ++i) {
    auto* half = b.ir.CreateLoad(
        b.int_type(64), b.ir.CreateConstGEP1_64(b.int_type(8), address, std::int64_t{8} * i));
    order(half, ordering_of(op), 8);
    whole = b.ir.CreateOr(whole, b.ir.CreateShl(b.ir.CreateZExt(half, b.int_type(128)), 64 * i));
  }
  return whole;
}

void store_wide(FunctionBuilder& b, const Operation& op, Value* address, Value* value) {
  Value* halves[2];
  for (unsigned i = 0; i < 2; ++i) {
    halves[i] = b.ir.CreateTrunc(b.ir.CreateLShr(value, 64 * i), b.int_type(64));
  }
  if (space_of(op) != ptx::Space::kShared) {
    Value* before = b.stack_slot(b.int_type(128));
    b.call_helper("gpurun_wide_exchange", llvm::Type::getVoidTy(b.context()),
                  {address, halves[0], halves[1], before}, false);
    return;
  }
  for (unsigned i = 0; i < 2; ++i) {
    order(b.ir.CreateStore(halves[i],
                           b.ir.CreateConstGEP1_64(b.int_type(8), address, std::int64_t{8} * i)),
          ordering_of(op), 8);
  }
}

void emit_ld(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 2);
  const Ordering ordering = ordering_of(op);
  Value* address = b.address(b.operand(op, 1), space_of(op));
  come_to_access(b, op, address, true);
  if (is_wide_atomic(op)) {
    if (!b.failed()) b.write(b.operand(op, 0), load_wide(b, op, address));
    return;
  }
  const unsigned count = vector_length(op);
  const unsigned bytes = op.type.bytes();
  // All are read before any register is written, because one may be the address.
  llvm::SmallVector<Value*, 4> values;
  for (unsigned i = 0; i < count && !b.failed(); ++i) {
    auto* load = b.ir.CreateLoad(b.int_type(op.type.bits),
                                 b.ir.CreateConstGEP1_64(b.int_type(8), address, i * bytes));
    order(load, ordering, bytes);
    if (is_kernel_parameter(b, b.operand(op, 1))) {  // Never changes.
      load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(b.context(), {}));
    }
    values.push_back(load);
  }
  for (unsigned i = 0; i < count && !b.failed(); ++i) {
    b.write(part(b, b.operand(op, 0), count, i), values[i], op.type.is_signed());
  }
}

void emit_st(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 2);
  const Ordering ordering = ordering_of(op);
  Value* address = b.address(b.operand(op, 0), space_of(op));
  come_to_access(b, op, address, false);
  if (is_wide_atomic(op)) {
    Value* value = b.read(b.operand(op, 1), 128);
    if (!b.failed()) store_wide(b, op, address, value);
    return;
  }
  const unsigned count = vector_length(op);
  const unsigned bytes = op.type.bytes();
  for (unsigned i = 0; i < count && !b.failed(); ++i) {
    Value* value = b.read(part(b, b.operand(op, 1), count, i), op.type.bits);
    order(b.ir.CreateStore(value, b.ir.CreateConstGEP1_64(b.int_type(8), address, i * bytes)),
          ordering, bytes);
  }
}

// Also packs and unpacks vectors, and takes addresses of variables and functions.
void emit_mov(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 2);
  b.write(b.operand(op, 0), b.read(b.operand(op, 1), op.type.bits), op.type.is_signed());
}

// Only shared addresses differ from generic ones.
void emit_cvta(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 2);
  const unsigned bits = op.type.bits;
  if (space_of(op) != ptx::Space::kShared) {
    return b.write(b.operand(op, 0), b.read(b.operand(op, 1), bits));
  }
  Value* result = nullptr;
  if (op.has("to")) {
    Value* base = b.ir.CreatePtrToInt(
        b.block_field(offsetof(BlockContext, shared), b.pointer_type()), b.int_type(64));
    Value* offset = b.ir.CreateSub(b.read(b.operand(op, 1), 64), base);
    result = b.ir.CreateAnd(offset, b.constant(64, 0xffffffffu));
  } else {
    result = b.ir.CreatePtrToInt(b.shared_pointer(b.read(b.operand(op, 1), 32)), b.int_type(64));
  }
  b.write(b.operand(op, 0), b.ir.CreateZExtOrTrunc(result, b.int_type(bits)));
}

#define GPURUN_TYPES "{b8,b16,b32,b64,u8,u16,u32,u64,s8,s16,s32,s64,f32,f64}"
// 16 bytes are the longest vector, except 32 in global memory.
#define GPURUN_V4 ".v4.{b8,b16,b32,u8,u16,u32,s8,s16,s32,f32}"
#define GPURUN_LONG_V4 ".v4.{b64,u64,s64,f64}"

constexpr VariantRow kMemoryRows[] = {
    {"ld{,.global,.shared,.local,.param,.const}{,.v2}." GPURUN_TYPES, emit_ld},
    {"ld{,.global,.shared,.local,.param,.const}" GPURUN_V4, emit_ld},
    {"ld.{volatile,relaxed,acquire}{,.global,.shared}{,.v2}." GPURUN_TYPES, emit_ld},
    {"ld.{volatile,relaxed,acquire}{,.global,.shared}" GPURUN_V4, emit_ld},
    {"ld{,.volatile,.relaxed,.acquire}{,.global}" GPURUN_LONG_V4, emit_ld},
    {"ld.volatile.local{,.v2}." GPURUN_TYPES, emit_ld},
    {"ld.volatile.local" GPURUN_V4, emit_ld},
    {"ld{,.global,.shared,.local,.param,.const}.b128", emit_ld},
    {"ld.{volatile,relaxed,acquire}{,.global,.shared}.b128", emit_ld},
    {"ld.volatile.local.b128", emit_ld},
    {"ld{,.global}.v8.{b32,u32,s32,f32}", emit_ld},
    {"ldu{,.global}{,.v2}." GPURUN_TYPES, emit_ld},
    {"ldu{,.global}" GPURUN_V4, emit_ld},
    {"st{,.global,.shared,.local,.param}{,.v2}." GPURUN_TYPES, emit_st},
    {"st{,.global,.shared,.local,.param}" GPURUN_V4, emit_st},
    {"st.{volatile,relaxed,release}{,.global,.shared}{,.v2}." GPURUN_TYPES, emit_st},
    {"st.{volatile,relaxed,release}{,.global,.shared}" GPURUN_V4, emit_st},
    {"st{,.volatile,.relaxed,.release}{,.global}" GPURUN_LONG_V4, emit_st},
    {"st.volatile.local{,.v2}." GPURUN_TYPES, emit_st},
    {"st.volatile.local" GPURUN_V4, emit_st},
    {"st{,.global,.shared,.local,.param}.b128", emit_st},
    {"st.{volatile,relaxed,release}{,.global,.shared}.b128", emit_st},
    {"st.volatile.local.b128", emit_st},
    {"st{,.global}.v8.{b32,u32,s32,f32}", emit_st},
    {"mov.b128", emit_mov},
    {"mov.{pred,b16,b32,b64,u16,u32,u64,s16,s32,s64,f32,f64}", emit_mov},
    {"cvta{,.to}.{global,shared,local,const,param}.u64", emit_cvta},
};

}  // namespace

std::span<const VariantRow> memory_rows() { return kMemoryRows; }

}  // namespace gpurun::emulated
