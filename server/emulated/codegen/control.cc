// Branches, calls and ends (PTX ISA, section 9.7.12).
#include <algorithm>

#include "server/emulated/codegen/function_builder.h"
#include "server/emulated/codegen/variant_table.h"

namespace gpurun::emulated {
namespace {

using llvm::Value;
using Kind = ptx::Operand::Kind;

void emit_bra(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 1, 1);
  if (b.operand(op, 0).kind != Kind::kLabel) return b.refuse("a label expected");
  b.ir.CreateBr(b.label_block(b.operand(op, 0).index));
}

// An index beyond the table is undefined in PTX; here it ends the grid.
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

constexpr VariantRow kRows[] = {
    {"bra", emit_bra},   {"brx.idx", emit_brx}, {"ret", emit_ret},
    {"exit", emit_exit}, {"trap", emit_trap},   {"call", emit_call},
};

}  // namespace

std::span<const VariantRow> control_rows() { return kRows; }

// Calls ---------------------------------------------------------------------------------------

llvm::Function* FunctionBuilder::declare_function(const Symbol& symbol) {
  if (llvm::Function* known = module_.getFunction(symbol.link_name)) return known;
  const ptx::Signature& signature = symbol.function->signature;
  std::vector<llvm::Type*> types(1 + signature.results.size() + signature.parameters.size(),
                                 pointer_type());
  return llvm::Function::Create(
      llvm::FunctionType::get(llvm::Type::getVoidTy(context()), types, false),
      llvm::GlobalValue::ExternalLinkage, symbol.link_name, &module_);
}

// Where the callee finds one parameter or puts one result: the .param variable itself, or a copy of
// a register or constant.
llvm::Value* FunctionBuilder::argument_pointer(const ptx::Operand& operand,
                                               const ptx::Variable& parameter) {
  if (operand.kind == Kind::kVariable && variable_pointer(operand.index) != nullptr) {
    if (function().variables[operand.index].byte_size() < parameter.byte_size()) {
      refuse("an argument is smaller than its parameter");
    }
    return variable_pointer(operand.index);
  }
  return stack_slot(
      llvm::ArrayType::get(int_type(8), std::max<std::uint64_t>(16, parameter.byte_size())));
}

void FunctionBuilder::call_function(const Operation& op) {
  const ptx::Operand& callee = operand(op, 0);
  if (callee.kind != Kind::kSymbol) return refuse("calls through pointers are not translated yet");
  const Symbol symbol = source_.scope->find(callee.name);
  if (symbol.kind != Symbol::Kind::kFunction || symbol.function == nullptr) {
    return refuse("no function " + std::string(callee.name) + " to call");
  }
  const ptx::Signature& signature = symbol.function->signature;
  const auto& results = op.instruction.results;
  const auto& arguments = op.instruction.arguments;
  if (results.size() != signature.results.size() ||
      arguments.size() != signature.parameters.size()) {
    return refuse("another number of arguments than the function has");
  }
  llvm::SmallVector<Value*, 8> values{thread_};
  for (std::size_t i = 0; i < results.size(); ++i) {
    values.push_back(argument_pointer(results[i], signature.results[i]));
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    values.push_back(argument_pointer(arguments[i], signature.parameters[i]));
    if (arguments[i].kind == Kind::kVariable) continue;
    Value* value = read(arguments[i], signature.parameters[i].type.bits);
    ir.CreateAlignedStore(value, values.back(), llvm::Align(1));
  }
  if (failed()) return;
  ir.CreateCall(declare_function(symbol), values);
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i].kind == Kind::kVariable) continue;
    write(results[i], ir.CreateAlignedLoad(int_type(signature.results[i].type.bits), values[1 + i],
                                           llvm::Align(1)));
  }
}

}  // namespace gpurun::emulated
