// One instruction for all lanes of a slice: once, as a vector, or lane by lane.
#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/Module.h>

#include "emulated/regions/slice_code.h"

namespace gpurun::emulated {

using llvm::Instruction;
using llvm::Type;
using llvm::Value;

namespace {

Type* vector_type(Type* type, unsigned lanes) { return llvm::FixedVectorType::get(type, lanes); }

// Metadata of one lane's access need not hold for the slice's.
void drop_metadata(Instruction* copy) {
  copy->dropUnknownNonDebugMetadata({llvm::LLVMContext::MD_invariant_load});
}

}  // namespace

void SliceCode::emit_instruction(Instruction& instruction) {
  if (!thread_.shape(&instruction).is_varying() && !instruction.getType()->isVoidTy()) {
    Lanes lanes;
    lanes.one = emit_once(instruction);
    return write(&instruction, std::move(lanes));
  }
  if (instruction.getOpcode() == Instruction::Fence) {
    ir_.Insert(instruction.clone());
    return;
  }
  if (emit_vector_memory(instruction) || emit_vector(instruction)) return;
  emit_each(instruction);
}

// For the first lane. The others have the same value, or one that grows by the stride.
Value* SliceCode::emit_once(Instruction& instruction) {
  Instruction* copy = instruction.clone();
  drop_metadata(copy);
  for (unsigned i = 0; i < copy->getNumOperands(); ++i) {
    copy->setOperand(i, one(instruction.getOperand(i)));
  }
  return ir_.Insert(copy);
}

bool SliceCode::emit_vector(Instruction& instruction) {
  if (!fits_vector(instruction.getType())) return false;
  if (auto* call = llvm::dyn_cast<llvm::CallInst>(&instruction)) {
    Lanes lanes;
    lanes.vector = emit_vector_call(*call);
    if (lanes.vector == nullptr) return false;
    write(&instruction, std::move(lanes));
    return true;
  }
  if (auto* address = llvm::dyn_cast<llvm::GetElementPtrInst>(&instruction)) {
    const auto part_of = [&](Value* value) {
      return thread_.shape(value).is_uniform() ? one(value) : vector(value);
    };
    llvm::SmallVector<Value*, 4> indices;
    for (Value* index : address->indices()) indices.push_back(part_of(index));
    Lanes lanes;
    lanes.vector = ir_.CreateGEP(address->getSourceElementType(),
                                 part_of(address->getPointerOperand()), indices);
    write(&instruction, std::move(lanes));
    return true;
  }
  if (!llvm::isa<llvm::BinaryOperator, llvm::UnaryOperator, llvm::CastInst, llvm::CmpInst,
                 llvm::SelectInst, llvm::FreezeInst>(instruction)) {
    return false;
  }
  for (const Value* operand : instruction.operands()) {
    if (!fits_vector(operand->getType())) return false;
  }
  llvm::SmallVector<Value*, 3> operands;
  for (unsigned i = 0; i < instruction.getNumOperands(); ++i) {
    Value* operand = instruction.getOperand(i);
    const bool condition =
        i == 0 && llvm::isa<llvm::SelectInst>(instruction) && thread_.shape(operand).is_uniform();
    operands.push_back(condition ? one(operand) : vector(operand));
  }
  Instruction* copy = instruction.clone();
  copy->dropUnknownNonDebugMetadata();
  copy->mutateType(vector_type(instruction.getType(), lane_count_));
  for (unsigned i = 0; i < operands.size(); ++i) copy->setOperand(i, operands[i]);
  Lanes lanes;
  lanes.vector = ir_.Insert(copy);
  write(&instruction, std::move(lanes));
  return true;
}

// nullptr: there is no such intrinsic for vectors.
Value* SliceCode::emit_vector_call(llvm::CallInst& call) {
  const llvm::Intrinsic::ID id = call.getIntrinsicID();
  if (id == llvm::Intrinsic::not_intrinsic || !llvm::isTriviallyVectorizable(id)) return nullptr;
  llvm::SmallVector<Value*, 3> arguments;
  llvm::SmallVector<Type*, 3> types;
  if (llvm::isVectorIntrinsicWithOverloadTypeAtArg(id, -1)) {
    types.push_back(vector_type(call.getType(), lane_count_));
  }
  for (unsigned i = 0; i < call.arg_size(); ++i) {
    Value* argument = call.getArgOperand(i);
    if (llvm::isVectorIntrinsicWithScalarOpAtArg(id, i)) {
      if (!thread_.shape(argument).is_uniform()) return nullptr;
      arguments.push_back(one(argument));
    } else {
      if (!fits_vector(argument->getType())) return nullptr;
      arguments.push_back(vector(argument));
    }
    if (llvm::isVectorIntrinsicWithOverloadTypeAtArg(id, static_cast<int>(i))) {
      types.push_back(arguments.back()->getType());
    }
  }
  llvm::Function* intrinsic =
      llvm::Intrinsic::getDeclaration(shell_.function()->getParent(), id, types);
  llvm::CallInst* copy = ir_.CreateCall(intrinsic, arguments);
  if (llvm::isa<llvm::FPMathOperator>(copy)) copy->copyFastMathFlags(&call);
  return copy;
}

// Accesses to neighbouring elements, and stores of all lanes to one place, where the last store
// counts.
bool SliceCode::emit_vector_memory(Instruction& instruction) {
  auto* load = llvm::dyn_cast<llvm::LoadInst>(&instruction);
  auto* store = llvm::dyn_cast<llvm::StoreInst>(&instruction);
  if (load == nullptr && store == nullptr) return false;
  if (load != nullptr ? !load->isSimple() : !store->isSimple()) return false;
  Value* address = llvm::getLoadStorePointerOperand(&instruction);
  Type* type = llvm::getLoadStoreType(&instruction);
  const llvm::DataLayout& layout = shell_.function()->getParent()->getDataLayout();
  const Shape shape = thread_.shape(address);
  if (store != nullptr && shape.is_uniform()) {
    ir_.CreateAlignedStore(lane(store->getValueOperand(), lane_count_ - 1), one(address),
                           store->getAlign());
    return true;
  }
  const std::uint64_t bytes = layout.getTypeStoreSize(type);
  if (!shape.is_affine() || shape.stride != static_cast<std::int64_t>(bytes) ||
      !fits_vector(type) || layout.getTypeSizeInBits(type) != 8 * bytes ||
      layout.getTypeAllocSize(type) != bytes) {
    return false;
  }
  if (store != nullptr) {
    Value* all = vector(store->getValueOperand());
    ir_.CreateAlignedStore(all, one(address), store->getAlign());
    return true;
  }
  auto* all = ir_.CreateAlignedLoad(vector_type(type, lane_count_), one(address), load->getAlign());
  if (load->hasMetadata(llvm::LLVMContext::MD_invariant_load)) {
    all->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(shell_.context(), {}));
  }
  Lanes lanes;
  lanes.vector = all;
  write(&instruction, std::move(lanes));
  return true;
}

// A call that does not return. The first lane's is the only one.
bool SliceCode::emit_last_call(Instruction& instruction) {
  auto* call = llvm::dyn_cast<llvm::CallInst>(&instruction);
  if (call == nullptr || call->getCalledFunction() == nullptr) return false;
  const llvm::StringRef name = call->getCalledFunction()->getName();
  if (name != "gpurun_device_trap" && name != "gpurun_device_object_fault") return false;
  (void)emit_once(instruction);
  ir_.CreateUnreachable();
  return true;
}

void SliceCode::emit_each(Instruction& instruction) {
  llvm::SmallVector<Value*, kSliceLanes> results;
  for (unsigned i = 0; i < lane_count_; ++i) {
    Instruction* copy = instruction.clone();
    drop_metadata(copy);
    for (unsigned k = 0; k < copy->getNumOperands(); ++k) {
      copy->setOperand(k, lane(instruction.getOperand(k), i));
    }
    ir_.Insert(copy);
    results.push_back(copy);
  }
  if (instruction.getType()->isVoidTy()) return;
  Lanes lanes;
  if (fits_vector(instruction.getType())) {
    lanes.vector = pack(results);
  } else {
    lanes.each = results;
  }
  write(&instruction, std::move(lanes));
}

}  // namespace gpurun::emulated
