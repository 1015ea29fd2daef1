// The frame of a translated function: its LLVM signature, registers, variables, blocks and guards.
#include "emulated/codegen/function_builder.h"

#include <algorithm>

#include "emulated/codegen/register_zeros.h"
#include "emulated/codegen/variant_table.h"
#include "emulated/codegen/warp_call.h"
#include "emulated/runtime/device_abi.h"

namespace gpurun::emulated {
namespace {

constexpr std::uint64_t kLocalBytesMax = 512u
                                         << 10;  // Of one function. CUDA's own limit per thread.

const ptx::Operand kMissing;

Operation make_operation(const ptx::Instruction& instruction, std::uint32_t site) {
  Operation op{instruction, {}, {}, site};
  for (std::string_view modifier : instruction.modifiers) {
    const ptx::Type type = ptx::parse_type(modifier);
    if (type.is_none()) continue;
    if (op.first_type.is_none()) op.first_type = type;
    op.type = type;
  }
  return op;
}

}  // namespace

std::vector<std::uint32_t> parameter_offsets(const std::vector<ptx::Variable>& parameters,
                                             std::uint32_t* total_bytes) {
  std::vector<std::uint32_t> offsets;
  std::uint64_t end = 0;
  for (const ptx::Variable& parameter : parameters) {
    const std::uint64_t alignment = parameter.byte_alignment();
    end = (end + alignment - 1) / alignment * alignment;
    offsets.push_back(static_cast<std::uint32_t>(end));
    end += parameter.byte_size();
  }
  *total_bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(end, 0xffffffffu));
  return offsets;
}

FunctionBuilder::FunctionBuilder(llvm::Module& module, const KernelSource& kernel,
                                 const FunctionSource& source, std::uint32_t ordinal)
    : ir(module.getContext()),
      module_(module),
      kernel_(kernel),
      source_(source),
      ordinal_(ordinal),
      entry_(module.getContext()) {}

void FunctionBuilder::refuse(const std::string& why) {
  if (!status_.ok()) return;
  std::string message = "function " + std::string(function().name);
  if (current_ != nullptr) {
    message += ", PTX line " + std::to_string(current_->line) + ": " + current_->full_name();
  }
  status_ = Status(Code::kRefused, message + ": " + why);
}

const ptx::Operand& FunctionBuilder::operand(const Operation& op, std::size_t index) {
  if (index < op.operand_count()) return op.instruction.operands[index];
  refuse("too few operands");
  return kMissing;
}

void FunctionBuilder::expect_operands(const Operation& op, std::size_t least, std::size_t most) {
  // A cache policy comes last and has no effect here.
  const std::size_t policy = op.has("L2::cache_hint") ? 1 : 0;
  if (op.operand_count() < least + policy || op.operand_count() > most + policy) {
    refuse("wrong number of operands");
  }
}

Status FunctionBuilder::build() {
  create_function();
  registers_.resize(function().registers.size(), nullptr);
  create_variables();
  if (failed()) return status_;
  auto* body = new_block("body");
  ir.SetInsertPoint(body);
  bind_parameters();
  for (std::uint32_t i = 0; i < function().label_count; ++i) labels_.push_back(new_block());
  std::uint32_t index = 0;
  for (const ptx::Statement& statement : function().body) {
    emit_statement(statement, index++);
    if (failed()) return status_;
  }
  if (ir.GetInsertBlock()->getTerminator() == nullptr) emit_return();
  for (llvm::BasicBlock& block : *function_) {
    if (&block == &function_->getEntryBlock() || block.getTerminator() != nullptr) continue;
    ir.SetInsertPoint(&block);
    emit_return();
  }
  entry_.CreateBr(body);
  place_register_zeros(*function_, registers_);
  return status_;
}

void FunctionBuilder::create_function() {
  const std::string name = &source_ == &kernel_.root ? kRootSymbol : source_.link_name;
  function_ = module_.getFunction(name);
  if (function_ == nullptr) {
    std::vector<llvm::Type*> arguments{pointer_type()};
    if (!is_entry()) {
      const ptx::Signature& signature = function().signature;
      arguments.insert(arguments.end(), signature.results.size() + signature.parameters.size(),
                       pointer_type());
    }
    function_ = llvm::Function::Create(
        llvm::FunctionType::get(llvm::Type::getVoidTy(context()), arguments, false),
        llvm::GlobalValue::ExternalLinkage, name, &module_);
  }
  if (&source_ != &kernel_.root) function_->setLinkage(llvm::GlobalValue::InternalLinkage);
  function_->addFnAttr(llvm::Attribute::NoUnwind);
  // An access through a null pointer is a fault to be reported, so LLVM must not drop it.
  function_->addFnAttr(llvm::Attribute::NullPointerIsValid);
  thread_ = function_->getArg(0);
  entry_.SetInsertPoint(llvm::BasicBlock::Create(context(), "entry", function_));
  block_ = entry_.CreateLoad(
      pointer_type(),
      entry_.CreateConstInBoundsGEP1_64(int_type(8), thread_, offsetof(ThreadContext, block)));
  carry_ = stack_slot(int_type(1), 1);
  entry_.CreateStore(constant(1, 0), carry_);
}

void FunctionBuilder::create_variables() {
  std::uint32_t total = 0;
  if (is_entry()) parameter_offsets_ = parameter_offsets(function().signature.parameters, &total);
  const std::size_t signature_count =
      function().signature.results.size() + function().signature.parameters.size();
  Value* params =
      is_entry() ? block_field(offsetof(BlockContext, params), pointer_type()) : nullptr;
  std::uint64_t local_bytes = 0;
  for (std::size_t i = 0; i < function().variables.size(); ++i) {
    const ptx::Variable& variable = function().variables[i];
    if (i < signature_count) {
      variables_.push_back(
          is_entry() ? entry_.CreateConstInBoundsGEP1_64(int_type(8), params, parameter_offsets_[i])
                     : function_->getArg(static_cast<unsigned>(i + 1)));
      continue;
    }
    if (variable.space == ptx::Space::kShared) {
      variables_.push_back(nullptr);
      continue;
    }
    local_bytes += variable.byte_size();
    if (local_bytes > kLocalBytesMax) return refuse("more than 512 KiB of local memory");
    variables_.push_back(stack_slot(llvm::ArrayType::get(int_type(8), variable.byte_size()),
                                    std::max<std::uint32_t>(16, variable.byte_alignment())));
  }
}

void FunctionBuilder::bind_parameters() {
  const std::size_t result_count = function().signature.results.size();
  for (const auto& [variable, index] : function().parameter_registers) {
    if (variable < result_count) continue;
    const unsigned bits = std::max<unsigned>(8, function().registers[index].bits);
    write_register(index,
                   ir.CreateAlignedLoad(int_type(bits), variables_[variable], llvm::Align(1)));
  }
}

void FunctionBuilder::emit_return() {
  const std::size_t result_count = function().signature.results.size();
  for (const auto& [variable, index] : function().parameter_registers) {
    if (variable >= result_count) continue;
    const unsigned bits = std::max<unsigned>(8, function().registers[index].bits);
    Value* value = ir.CreateZExtOrTrunc(read_register(index), int_type(bits));
    ir.CreateAlignedStore(value, variables_[variable], llvm::Align(1));
  }
  ir.CreateRetVoid();
}

void FunctionBuilder::emit_statement(const ptx::Statement& statement, std::uint32_t index) {
  if (statement.label != ptx::kNoIndex) {
    llvm::BasicBlock* block = labels_[statement.label];
    if (ir.GetInsertBlock()->getTerminator() == nullptr) ir.CreateBr(block);
    ir.SetInsertPoint(block);
    return;
  }
  if (ir.GetInsertBlock()->getTerminator() != nullptr) ir.SetInsertPoint(new_block("dead"));
  current_ = &statement.instruction;
  const Operation op = make_operation(statement.instruction, ordinal_ << 20 | (index & 0xfffff));
  if (statement.instruction.guard != ptx::kNoIndex) {
    emit_guarded(op);
  } else {
    emit_operation(op);
  }
}

void FunctionBuilder::emit_guarded(const Operation& op) {
  Value* condition = read_register(op.instruction.guard);
  if (!condition->getType()->isIntegerTy(1)) return refuse("the guard is not a predicate");
  if (op.instruction.guard_negated) condition = ir.CreateNot(condition);
  llvm::BasicBlock* next = new_block();
  if (op.instruction.opcode == "bra" && op.operand_count() == 1 &&
      operand(op, 0).kind == ptx::Operand::Kind::kLabel) {
    ir.CreateCondBr(condition, label_block(operand(op, 0).index), next);
  } else {
    llvm::BasicBlock* then = new_block();
    ir.CreateCondBr(condition, then, next);
    ir.SetInsertPoint(then);
    emit_operation(op);
    if (ir.GetInsertBlock()->getTerminator() == nullptr) ir.CreateBr(next);
  }
  ir.SetInsertPoint(next);
}

void FunctionBuilder::emit_operation(const Operation& op) {
  const EmitFunction emit = find_variant(canonical_name(op.instruction));
  if (emit == nullptr) return refuse("unknown instruction");
  emit(*this, op);
}

llvm::BasicBlock* FunctionBuilder::new_block(const char* name) {
  return llvm::BasicBlock::Create(context(), name, function_);
}

llvm::BasicBlock* FunctionBuilder::label_block(std::uint32_t label) { return labels_[label]; }

void FunctionBuilder::end_unreachable() { ir.CreateUnreachable(); }

llvm::Value* FunctionBuilder::stack_slot(llvm::Type* type, unsigned alignment) {
  auto* slot = entry_.CreateAlloca(type);
  slot->setAlignment(llvm::Align(alignment));
  return slot;
}

llvm::Value* FunctionBuilder::warp_words() {
  if (warp_words_ == nullptr) {
    warp_words_ =
        stack_slot(llvm::ArrayType::get(int_type(32), kWarpInputWordsMax + kWarpResultWordsMax));
  }
  return warp_words_;
}

llvm::Value* FunctionBuilder::thread_field(std::size_t offset, llvm::Type* type,
                                           bool constant_in_block) {
  llvm::IRBuilder<>& at = constant_in_block ? entry_ : ir;
  auto* load = at.CreateLoad(type, at.CreateConstInBoundsGEP1_64(int_type(8), thread_, offset));
  if (constant_in_block) {
    load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(context(), {}));
  }
  return load;
}

llvm::Value* FunctionBuilder::block_field(std::size_t offset, llvm::Type* type) {
  auto* load =
      entry_.CreateLoad(type, entry_.CreateConstInBoundsGEP1_64(int_type(8), block_, offset));
  load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(context(), {}));
  return load;
}

llvm::Value* FunctionBuilder::thread_linear() {
  return thread_field(offsetof(ThreadContext, thread_linear), int_type(32));
}

llvm::Value* FunctionBuilder::lane() { return ir.CreateAnd(thread_linear(), 31); }

llvm::Value* FunctionBuilder::call_runtime(const char* field, llvm::Type* result,
                                           llvm::ArrayRef<Value*> arguments) {
  llvm::SmallVector<Value*, 8> all{thread_};
  all.append(arguments.begin(), arguments.end());
  return call_helper((std::string("gpurun_device_") + field).c_str(), result, all, false);
}

llvm::Value* FunctionBuilder::call_helper(const char* name, llvm::Type* result,
                                          llvm::ArrayRef<Value*> arguments, bool pure) {
  llvm::SmallVector<llvm::Type*, 8> types;
  for (Value* argument : arguments) types.push_back(argument->getType());
  llvm::FunctionCallee callee =
      module_.getOrInsertFunction(name, llvm::FunctionType::get(result, types, false));
  auto* call = ir.CreateCall(callee, arguments);
  call->addFnAttr(llvm::Attribute::NoUnwind);
  // Two waits are two places, even when they are equal (emulated/regions).
  call->addFnAttr(llvm::Attribute::NoMerge);
  if (pure) {
    call->setMemoryEffects(llvm::MemoryEffects::none());
    call->addFnAttr(llvm::Attribute::WillReturn);
  }
  return call;
}

llvm::Constant* FunctionBuilder::helper_address(const char* name) {
  return llvm::cast<llvm::Constant>(
      module_
          .getOrInsertFunction(name,
                               llvm::FunctionType::get(llvm::Type::getVoidTy(context()), false))
          .getCallee());
}

llvm::Value* FunctionBuilder::intrinsic(llvm::Intrinsic::ID id, llvm::ArrayRef<Value*> arguments,
                                        llvm::ArrayRef<llvm::Type*> types) {
  return ir.CreateCall(llvm::Intrinsic::getDeclaration(&module_, id, types), arguments);
}

void FunctionBuilder::poll() {
  Value* slot =
      ir.CreateConstInBoundsGEP1_64(int_type(8), thread_, offsetof(ThreadContext, poll_budget));
  Value* left = ir.CreateSub(ir.CreateLoad(int_type(32), slot), constant(32, 1));
  ir.CreateStore(left, slot);
  llvm::BasicBlock* yield = new_block();
  llvm::BasicBlock* next = new_block();
  ir.CreateCondBr(ir.CreateICmpSLE(left, constant(32, 0)), yield, next);
  ir.SetInsertPoint(yield);
  call_runtime("yield", llvm::Type::getVoidTy(context()), {});
  ir.CreateBr(next);
  ir.SetInsertPoint(next);
}

}  // namespace gpurun::emulated
