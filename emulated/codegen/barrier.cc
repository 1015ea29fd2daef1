// Barriers, fences and waiting (PTX ISA, section 9.7.13).
#include "emulated/codegen/function_builder.h"
#include "emulated/codegen/variant_table.h"
#include "emulated/runtime/device_abi.h"

namespace gpurun::emulated {
namespace {

using llvm::Value;

llvm::Type* nothing(FunctionBuilder& b) { return llvm::Type::getVoidTy(b.context()); }

// Operand `index`, or 0. A barrier without a count is for all threads.
Value* count_at(FunctionBuilder& b, const Operation& op, std::size_t index) {
  return index < op.operand_count() ? b.read(b.operand(op, index), 32) : b.constant(32, 0);
}

void emit_sync(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 1, 2);
  b.call_runtime("barrier_sync", nothing(b), {b.read(b.operand(op, 0), 32), count_at(b, op, 1)});
}

void emit_arrive(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 2);
  b.call_runtime("barrier_arrive", nothing(b),
                 {b.read(b.operand(op, 0), 32), b.read(b.operand(op, 1), 32)});
}

void emit_red(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 3, 4);
  auto reduction = BarrierReduction::kPopulation;
  if (op.has("and")) reduction = BarrierReduction::kAnd;
  if (op.has("or")) reduction = BarrierReduction::kOr;
  const std::size_t last = op.operand_count() - 1;
  Value* count = last == 3 ? b.read(b.operand(op, 2), 32) : b.constant(32, 0);
  Value* value = b.ir.CreateZExt(b.read_predicate(b.operand(op, last)), b.int_type(32));
  Value* result = b.call_runtime("barrier_reduce", b.int_type(32),
                                 {b.read(b.operand(op, 1), 32), count,
                                  b.constant(32, static_cast<std::uint32_t>(reduction)), value});
  if (reduction != BarrierReduction::kPopulation) {
    result = b.ir.CreateICmpNE(result, b.constant(32, 0));
  }
  b.write(b.operand(op, 0), result);
}

// Scopes are not distinguished, and proxies do not exist here. One fence is as strong as all.
void emit_fence(FunctionBuilder& b, const Operation&) {
  b.ir.CreateFence(llvm::AtomicOrdering::SequentiallyConsistent);
}

void emit_nanosleep(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 1, 1);
  b.call_runtime("sleep", nothing(b), {b.read(b.operand(op, 0), 32)});
}

// Programmatic dependent launch. A grid starts when the one before it is complete, so there is
// nothing to wait for and nothing to release.
void emit_nothing(FunctionBuilder&, const Operation&) {}

constexpr VariantRow kBarrierRows[] = {
    {"{bar,barrier}{,.cta}.sync", emit_sync},
    {"{bar,barrier}{,.cta}.arrive", emit_arrive},
    {"{bar,barrier}{,.cta}.red.popc.u32", emit_red},
    {"{bar,barrier}{,.cta}.red.{and,or}.pred", emit_red},
    {"membar.{cta,gl,sys}", emit_fence},
    {"fence.{sc,acq_rel,acquire,release}", emit_fence},
    {"fence.proxy.{alias,async,async.global,async.shared}", emit_fence},
    {"membar.proxy.alias", emit_fence},
    {"fence.mbarrier_init.release", emit_fence},
    {"nanosleep.u32", emit_nanosleep},
    {"griddepcontrol.{wait,launch_dependents}", emit_nothing},
};

}  // namespace

std::span<const VariantRow> barrier_rows() { return kBarrierRows; }

}  // namespace gpurun::emulated
