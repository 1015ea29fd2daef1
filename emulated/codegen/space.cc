// Queries about address spaces, and hints about caches (PTX ISA, sections 9.7.9.14 to 9.7.9.23).
#include "emulated/codegen/function_builder.h"
#include "emulated/codegen/variant_table.h"
#include "emulated/runtime/device_abi.h"

namespace gpurun::emulated {
namespace {

using llvm::Value;

// low <= address < low + bytes
Value* within(FunctionBuilder& b, Value* address, Value* low, Value* bytes) {
  return b.ir.CreateICmpULT(b.ir.CreateSub(address, low), bytes);
}

Value* in_param(FunctionBuilder& b, Value* address) {
  Value* low = b.block_field(offsetof(BlockContext, params), b.int_type(64));
  Value* bytes = b.block_field(offsetof(BlockContext, param_bytes), b.int_type(32));
  return within(b, address, low, b.ir.CreateZExt(bytes, b.int_type(64)));
}

Value* in_local(FunctionBuilder& b, Value* address) {
  Value* low = b.thread_field(offsetof(ThreadContext, stack_low), b.int_type(64));
  Value* high = b.thread_field(offsetof(ThreadContext, stack_high), b.int_type(64));
  return within(b, address, low, b.ir.CreateSub(high, low));
}

// Constant memory is global memory on this device, so its addresses count as global ones.
void emit_isspacep(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 2);
  Value* address = b.read(b.operand(op, 1), 64);
  if (b.failed()) return;
  Value* result = nullptr;
  if (op.has("const")) {
    result = b.constant(1, 0);
  } else if (op.has("local")) {
    result = in_local(b, address);
  } else if (op.has("global")) {
    Value* other = b.ir.CreateOr(b.in_shared(address), in_local(b, address));
    result = b.ir.CreateNot(b.ir.CreateOr(other, in_param(b, address)));
  } else {
    const bool param = op.has("param") || op.has("param::entry");
    result = param ? in_param(b, address) : b.in_shared(address);
  }
  b.write(b.operand(op, 0), result);
}

// Does nothing, because the host manages its caches itself.
void emit_hint(FunctionBuilder& b, const Operation& op) { b.expect_operands(op, 1, 1); }

constexpr VariantRow kSpaceRows[] = {
    {"isspacep.{global,shared,local,const,param}", emit_isspacep},
    {"prefetch{,.global,.local}.{L1,L2}", emit_hint},
    {"prefetch.global", emit_hint},  // .L2::evict_last etc.
    {"prefetchu.L1", emit_hint},
};

}  // namespace

Value* FunctionBuilder::in_shared(Value* address64) {
  Value* low = block_field(offsetof(BlockContext, shared), int_type(64));
  Value* bytes = block_field(offsetof(BlockContext, shared_window_bytes), int_type(32));
  return within(*this, address64, low, ir.CreateZExt(bytes, int_type(64)));
}

std::span<const VariantRow> space_rows() { return kSpaceRows; }

}  // namespace gpurun::emulated
