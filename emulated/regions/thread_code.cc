// Analysis of a thread: what only a thread of its own can do, where it waits, and what it reads of
// itself.
#include "emulated/regions/thread_code.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Operator.h>

#include <string>

#include "emulated/codegen/function_source.h"

namespace gpurun::emulated {
namespace {

// Bound of one lane's memory besides registers, because a block has 1,024 lanes.
constexpr std::uint64_t kLocalBytesMax = 16 << 10;

constexpr llvm::StringRef kRuntimePrefix = "gpurun_device_";

Status refused(const std::string& why) { return Status(Code::kRefused, why); }

bool is_dropped(const llvm::CallInst& call) {
  switch (call.getIntrinsicID()) {
    case llvm::Intrinsic::lifetime_start:
    case llvm::Intrinsic::lifetime_end:
    case llvm::Intrinsic::assume:
    case llvm::Intrinsic::experimental_noalias_scope_decl:
      return true;
    default:
      return false;
  }
}

// Of an exchange. The second result is above the first.
std::uint32_t results_asked_for(const llvm::CallInst& call) {
  for (const llvm::User* user : call.users()) {
    const auto* narrowed = llvm::dyn_cast<llvm::TruncInst>(user);
    if (narrowed == nullptr || narrowed->getType()->getIntegerBitWidth() > 32) return 2;
  }
  return call.use_empty() ? 0 : 1;
}

bool is_constant_number(const llvm::Value* value, std::uint32_t* number) {
  const auto* constant = llvm::dyn_cast<llvm::ConstantInt>(value);
  if (constant == nullptr) return false;
  *number = static_cast<std::uint32_t>(constant->getZExtValue());
  return true;
}

}  // namespace

bool fits_vector(const llvm::Type* type) {
  if (type->isIntegerTy()) return type->getIntegerBitWidth() <= 64;
  return type->isHalfTy() || type->isFloatTy() || type->isDoubleTy() || type->isPointerTy();
}

std::uint64_t memory_bytes(const llvm::Function& function, llvm::Type* type) {
  return function.getParent()->getDataLayout().getTypeAllocSize(type);
}

llvm::Type* memory_type(const llvm::Function& function, llvm::Type* type) {
  if (!type->isIntegerTy()) return type;
  return llvm::IntegerType::get(type->getContext(),
                                8 * static_cast<unsigned>(memory_bytes(function, type)));
}

Result<std::unique_ptr<ThreadCode>> ThreadCode::analyse(llvm::Function& function,
                                                        unsigned slice_lanes) {
  std::unique_ptr<ThreadCode> code(new ThreadCode(function, slice_lanes));
  GPURUN_RETURN_IF_ERROR(code->find_cuts());
  GPURUN_RETURN_IF_ERROR(code->find_leaves());
  GPURUN_RETURN_IF_ERROR(code->place_local_memory());
  code->find_shapes();
  code->find_guards();
  code->split_at_guards();
  code->split_at_divergence();
  code->find_lifetimes();
  GPURUN_RETURN_IF_ERROR(code->place_slots());
  return code;
}

int ThreadCode::cut_of(const llvm::BasicBlock* block) const {
  const auto found = cut_of_.find(block);
  return found == cut_of_.end() ? -1 : found->second;
}

Status ThreadCode::check_call(llvm::CallInst& call, llvm::SmallVectorImpl<llvm::CallInst*>& cuts) {
  const llvm::Function* callee = call.getCalledFunction();
  if (callee == nullptr) return refused("a call through a pointer");
  if (callee->isIntrinsic()) return Status();
  const llvm::StringRef name = callee->getName();
  if (!callee->isDeclaration()) {
    if (name.starts_with(kUpdateFunction)) return Status();
    return refused("a call of a function that cannot be inlined");
  }
  if (!name.starts_with(kRuntimePrefix)) return Status();
  const llvm::StringRef field = name.drop_front(kRuntimePrefix.size());
  if (field == "barrier_sync" || field == "barrier_reduce" || field == "warp" ||
      field == "exchange") {
    cuts.push_back(&call);
    return Status();
  }
  if (field == "trap" || field == "object_fault" || field == "exit" || field == "global_timer") {
    return Status();
  }
  return refused("it calls " + field.str());
}

Status ThreadCode::check_memory(llvm::Instruction& instruction) {
  if (const auto* variable = llvm::dyn_cast<llvm::AllocaInst>(&instruction)) {
    if (!variable->isStaticAlloca()) return refused("local memory of unknown size");
  }
  if (llvm::isa<llvm::InvokeInst, llvm::CallBrInst, llvm::IndirectBrInst>(instruction)) {
    return refused("an unusual branch");
  }
  return Status();
}

Status ThreadCode::find_cuts() {
  llvm::SmallVector<llvm::CallInst*, 8> calls;
  llvm::SmallVector<llvm::Instruction*, 8> dropped;
  llvm::SmallVector<llvm::CallInst*, 2> exits;
  for (llvm::Instruction& instruction : llvm::instructions(function_)) {
    GPURUN_RETURN_IF_ERROR(check_memory(instruction));
    auto* call = llvm::dyn_cast<llvm::CallInst>(&instruction);
    if (call == nullptr) continue;
    if (is_dropped(*call)) {
      dropped.push_back(call);
      continue;
    }
    GPURUN_RETURN_IF_ERROR(check_call(*call, calls));
    const llvm::Function* callee = call->getCalledFunction();
    if (callee != nullptr && callee->getName() == "gpurun_device_exit") exits.push_back(call);
  }
  for (llvm::Instruction* instruction : dropped) instruction->eraseFromParent();
  for (llvm::CallInst* call : exits) {
    // Everything is inlined, so what ends the thread is a return.
    llvm::BasicBlock* block = call->getParent();
    block->splitBasicBlock(call);
    block->getTerminator()->eraseFromParent();
    llvm::ReturnInst::Create(function_.getContext(), block);
  }
  for (llvm::CallInst* call : calls) {
    Cut cut;
    cut.call = call;
    cut.block = call->getParent();
    cut.resume = cut.block->splitBasicBlock(call->getNextNode(), "resume");
    GPURUN_RETURN_IF_ERROR(describe_cut(cut));
    cuts_.push_back(cut);
  }
  // A block may have been split again after the cut, so the call's present block counts.
  for (std::size_t i = 0; i < cuts_.size(); ++i) {
    cuts_[i].block = cuts_[i].call->getParent();
    cuts_[i].resume = cuts_[i].block->getSingleSuccessor();
    cut_of_[cuts_[i].block] = static_cast<int>(i);
  }
  return Status();
}

Status ThreadCode::describe_cut(Cut& cut) {
  const llvm::StringRef name = cut.call->getCalledFunction()->getName();
  if (name == "gpurun_device_warp" || name == "gpurun_device_exchange") {
    cut.kind = name == "gpurun_device_warp" ? CutKind::kWarp : CutKind::kExchange;
    if (cut.kind == CutKind::kExchange) cut.results = results_asked_for(*cut.call);
    cut.function = llvm::dyn_cast<llvm::Constant>(cut.call->getArgOperand(3));
    if (cut.function == nullptr) return refused("a warp operation that is chosen at run time");
    return Status();
  }
  cut.kind = name == "gpurun_device_barrier_sync" ? CutKind::kBarrier : CutKind::kReduction;
  bool known = is_constant_number(cut.call->getArgOperand(1), &cut.id) &&
               is_constant_number(cut.call->getArgOperand(2), &cut.count);
  if (cut.kind == CutKind::kReduction) {
    known = known && is_constant_number(cut.call->getArgOperand(3), &cut.reduction);
  }
  return known ? Status() : refused("a barrier that is chosen at run time");
}

// Loads read the thread's context at known places only. Only the run time otherwise knows its
// address.
Status ThreadCode::find_leaves() {
  const auto leaf_at = [](std::int64_t offset) {
    if (offset == offsetof(ThreadContext, thread_id)) return Leaf::kX;
    if (offset == offsetof(ThreadContext, thread_id) + 4) return Leaf::kY;
    if (offset == offsetof(ThreadContext, thread_id) + 8) return Leaf::kZ;
    if (offset == offsetof(ThreadContext, thread_linear)) return Leaf::kLinear;
    return Leaf::kNone;
  };
  const auto look_at = [&](llvm::User* user, std::int64_t offset) -> Status {
    if (auto* load = llvm::dyn_cast<llvm::LoadInst>(user)) {
      if (offset == offsetof(ThreadContext, block) && load->getType()->isPointerTy()) {
        return Status();
      }
      if (load->getType()->isIntegerTy(64) && (offset == offsetof(ThreadContext, stack_low) ||
                                               offset == offsetof(ThreadContext, stack_high))) {
        return Status();
      }
      const Leaf leaf = leaf_at(offset);
      if (leaf != Leaf::kNone && load->getType()->isIntegerTy(32)) {
        leaves_[load] = leaf;
        return Status();
      }
    }
    return refused("it looks at its thread in an unknown way");
  };
  llvm::Argument* thread = function_.getArg(0);
  for (llvm::User* user : thread->users()) {
    if (llvm::isa<llvm::CallInst>(user)) continue;  // check_call() has seen it.
    auto* address = llvm::dyn_cast<llvm::GetElementPtrInst>(user);
    if (address == nullptr) {
      GPURUN_RETURN_IF_ERROR(look_at(user, 0));
      continue;
    }
    const llvm::DataLayout& layout = function_.getParent()->getDataLayout();
    llvm::APInt offset(64, 0);
    if (!address->accumulateConstantOffset(layout, offset)) {
      return refused("it looks at its thread in an unknown way");
    }
    for (llvm::User* deeper : address->users()) {
      GPURUN_RETURN_IF_ERROR(look_at(deeper, offset.getSExtValue()));
    }
  }
  return Status();
}

Status ThreadCode::place_local_memory() {
  for (llvm::Instruction& instruction : function_.getEntryBlock()) {
    auto* variable = llvm::dyn_cast<llvm::AllocaInst>(&instruction);
    if (variable == nullptr) continue;
    const llvm::DataLayout& layout = function_.getParent()->getDataLayout();
    const auto bytes = variable->getAllocationSize(layout);
    if (!bytes.has_value() || bytes->isScalable()) return refused("local memory of unknown size");
    const std::uint64_t alignment = variable->getAlign().value();
    if (alignment > 64) return refused("local memory of an unusual alignment");
    local_bytes_ = (local_bytes_ + alignment - 1) / alignment * alignment;
    local_[variable] = local_bytes_;
    local_bytes_ += bytes->getFixedValue();
    if (local_bytes_ > kLocalBytesMax) return refused("it uses much local memory");
  }
  local_bytes_ = (local_bytes_ + 63) / 64 * 64;
  return Status();
}

std::uint64_t ThreadCode::local_offset(const llvm::AllocaInst* variable) const {
  return local_.lookup(variable);
}

Leaf ThreadCode::leaf(const llvm::Value* value) const { return leaves_.lookup(value); }

bool ThreadCode::is_ambient(const llvm::Value* value) const {
  return llvm::isa<llvm::Constant, llvm::Argument, llvm::AllocaInst>(value) ||
         leaf(value) != Leaf::kNone || is_block_constant(value);
}

namespace {

// Whether the instruction can be executed anywhere.
bool is_harmless(const llvm::Instruction& instruction) {
  if (const auto* operation = llvm::dyn_cast<llvm::BinaryOperator>(&instruction)) {
    if (!operation->isIntDivRem()) return true;
    const auto* divisor = llvm::dyn_cast<llvm::ConstantInt>(operation->getOperand(1));
    return divisor != nullptr && !divisor->isZero() && !divisor->isMinusOne();
  }
  if (const auto* call = llvm::dyn_cast<llvm::CallInst>(&instruction)) {
    const llvm::Function* callee = call->getCalledFunction();
    return callee != nullptr && callee->isIntrinsic() && callee->isSpeculatable() &&
           call->doesNotAccessMemory();
  }
  return llvm::isa<llvm::UnaryOperator, llvm::CastInst, llvm::GetElementPtrInst, llvm::CmpInst,
                   llvm::SelectInst>(instruction);
}

}  // namespace

bool ThreadCode::is_block_constant(const llvm::Value* value) const {
  if (llvm::isa<llvm::Constant, llvm::Argument>(value)) return true;
  const auto* instruction = llvm::dyn_cast<llvm::Instruction>(value);
  if (instruction == nullptr || leaf(value) != Leaf::kNone) return false;
  if (const auto known = block_constant_.find(value); known != block_constant_.end()) {
    return known->second;
  }
  block_constant_[value] = false;  // Nothing in a cycle is.
  bool constant = false;
  if (const auto* load = llvm::dyn_cast<llvm::LoadInst>(instruction)) {
    // Fields of contexts and parameters, at a constant distance from a valid address.
    const llvm::Value* base = load->getPointerOperand();
    if (const auto* address = llvm::dyn_cast<llvm::GetElementPtrInst>(base)) {
      base = address->hasAllConstantIndices() ? address->getPointerOperand() : nullptr;
    }
    const bool of_thread = base == function_.getArg(0);
    const bool of_block = base != nullptr && llvm::isa<llvm::LoadInst>(base) &&
                          load->hasMetadata(llvm::LLVMContext::MD_invariant_load);
    constant = load->isSimple() && (of_thread || (of_block && is_block_constant(base)));
  } else if (is_harmless(*instruction)) {
    constant = true;
    for (const llvm::Value* operand : instruction->operands()) {
      constant = constant && is_block_constant(operand);
    }
  }
  block_constant_[value] = constant;
  return constant;
}

}  // namespace gpurun::emulated
