// Branches, calls and ends (PTX ISA, section 9.7.12).
#include "emulated/codegen/function_builder.h"
#include "emulated/codegen/variant_table.h"
#include "emulated/runtime/device_abi.h"

namespace gpurun::emulated {
namespace {

using llvm::Value;
using Kind = ptx::Operand::Kind;

void emit_bra(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 1, 1);
  if (b.operand(op, 0).kind != Kind::kLabel) return b.refuse("a label expected");
  b.ir.CreateBr(b.label_block(b.operand(op, 0).index));
}

// PTX leaves an index beyond the table undefined. Here it ends the grid.
void emit_brx(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 2);
  const ptx::Operand& table = b.operand(op, 1);
  if (table.kind != Kind::kTable || table.index >= b.function().branch_tables.size()) {
    return b.refuse("a branch table expected");
  }
  const auto& targets = b.function().branch_tables[table.index];
  llvm::BasicBlock* beyond = b.new_block("beyond");
  auto* choice = b.ir.CreateSwitch(b.read(b.operand(op, 0), 32), beyond,
                                   static_cast<unsigned>(targets.size()));
  for (std::size_t i = 0; i < targets.size(); ++i) {
    choice->addCase(llvm::cast<llvm::ConstantInt>(b.constant(32, i)), b.label_block(targets[i]));
  }
  b.ir.SetInsertPoint(beyond);
  b.call_runtime("trap", llvm::Type::getVoidTy(b.context()), {b.constant(32, op.site)});
  b.end_unreachable();
}

void emit_ret(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 0, 0);
  b.emit_return();
}

void emit_exit(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 0, 0);
  if (b.is_entry()) return b.emit_return();
  b.call_runtime("exit", llvm::Type::getVoidTy(b.context()), {});
  b.end_unreachable();
}

void emit_trap(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 0, 0);
  b.call_runtime("trap", llvm::Type::getVoidTy(b.context()), {b.constant(32, op.site)});
  b.end_unreachable();
}

void emit_call(FunctionBuilder& b, const Operation& op) { b.call_function(op); }

constexpr VariantRow kControlRows[] = {
    {"bra", emit_bra},   {"brx.idx", emit_brx}, {"ret", emit_ret},
    {"exit", emit_exit}, {"trap", emit_trap},   {"call", emit_call},
};

}  // namespace

void emit_multimem(FunctionBuilder& b, const Operation&) {
  b.call_runtime(
      "object_fault", llvm::Type::getVoidTy(b.context()),
      {b.constant(32, static_cast<std::uint32_t>(DeviceFault::kNoMulticast)), b.constant(64, 0)});
  b.end_unreachable();
}

std::span<const VariantRow> control_rows() { return kControlRows; }

}  // namespace gpurun::emulated
