// Lane code: a copy of the thread's instructions. Values that blocks share are in variables, which
// LLVM turns into registers again.
#include "emulated/regions/lane_code.h"

#include <llvm/IR/CFG.h>
#include <llvm/IR/Module.h>

namespace gpurun::emulated {

using llvm::Instruction;
using llvm::Type;
using llvm::Value;

LaneCode::LaneCode(RegionShell& shell)
    : shell_(shell), thread_(shell.thread_code()), ir_(shell.context()) {}

llvm::AllocaInst* LaneCode::place(const Instruction* value) {
  llvm::AllocaInst*& known = places_[value];
  if (known == nullptr) known = shell_.entry().CreateAlloca(value->getType());
  return known;
}

llvm::AllocaInst* LaneCode::spill_place(const Instruction* value) {
  llvm::AllocaInst*& known = spills_[value];
  if (known == nullptr) {
    Type* type = memory_type(*shell_.function(), value->getType());
    known = shell_.entry().CreateAlloca(llvm::ArrayType::get(type, thread_.slice_lanes()));
    known->setAlignment(llvm::Align(64));
  }
  return known;
}

Value* LaneCode::linear() {
  return ir_.CreateAdd(shell_.variable(ir_, shell_.row_first), shell_.variable(ir_, shell_.lane_x));
}

Value* LaneCode::read(Value* value) {
  if (llvm::isa<llvm::BasicBlock>(value) || llvm::isa<llvm::MetadataAsValue>(value)) return value;
  switch (thread_.leaf(value)) {
    case Leaf::kX:
      return shell_.variable(ir_, shell_.lane_x);
    case Leaf::kY:
      return shell_.variable(ir_, shell_.y);
    case Leaf::kZ:
      return shell_.variable(ir_, shell_.z);
    case Leaf::kLinear:
      return linear();
    case Leaf::kNone:
      break;
  }
  if (auto* variable = llvm::dyn_cast<llvm::AllocaInst>(value)) {
    return shell_.local_place(ir_, variable, linear());
  }
  if (thread_.is_block_constant(value)) return shell_.constant(value);
  if (Value* known = local_.lookup(value)) return known;
  return ir_.CreateLoad(value->getType(), place(llvm::cast<Instruction>(value)));
}

void LaneCode::write(const Instruction* instruction, Value* value) {
  local_[instruction] = value;
  if (thread_.is_shared(instruction)) ir_.CreateStore(value, place(instruction));
}

void LaneCode::emit() {
  for (Block* block : shell_.blocks()) {
    blocks_[block] = shell_.new_block("l." + block->getName());
  }
  ir_.SetInsertPoint(shell_.lane_begin);
  Block* nowhere = shell_.new_block("lane.nowhere");
  llvm::IRBuilder<>(nowhere).CreateUnreachable();
  dispatch_ = ir_.CreateSwitch(shell_.variable(ir_, shell_.lane_entry), nowhere);
  emit_resume();
  for (Block* block : shell_.blocks()) emit_block(block);
}

// Entry 0: the first block, with the values that live across the cut before it.
void LaneCode::emit_resume() {
  Block* resume = shell_.new_block("lane.resume");
  dispatch_->addCase(ir_.getInt32(0), resume);
  ir_.SetInsertPoint(resume);
  Block* first = shell_.blocks().front();
  if (shell_.index() != 0) {
    local_.clear();
    const Cut& cut = thread_.cuts()[shell_.index() - 1];
    for (Instruction* value : thread_.live_in(first)) {
      Value* found = nullptr;
      if (value == cut.call) {
        found = result_of(cut);
      } else if (thread_.is_recomputed(value)) {
        found = compute_again(value);
      } else {
        Type* type = memory_type(*shell_.function(), value->getType());
        found = ir_.CreateAlignedLoad(type, shell_.slot(ir_, value, linear()), llvm::Align(1));
        if (type != value->getType()) found = ir_.CreateTrunc(found, value->getType());
      }
      local_[value] = found;
      ir_.CreateStore(found, place(value));
    }
  }
  ir_.CreateBr(blocks_[first]);
}

Value* LaneCode::result_of(const Cut& cut) {
  Type* number = ir_.getInt32Ty();
  const auto load = [&](Value* array) {
    return ir_.CreateLoad(number, shell_.element(ir_, array, number, linear()));
  };
  Value* result = load(shell_.result);
  if (cut.kind != CutKind::kExchange) return result;
  result = ir_.CreateZExt(result, ir_.getInt64Ty());
  if (cut.results < 2) return result;
  return ir_.CreateOr(result,
                      ir_.CreateShl(ir_.CreateZExt(load(shell_.second), ir_.getInt64Ty()), 32));
}

Value* LaneCode::compute_again(Instruction* value) {
  if (Value* known = local_.lookup(value)) return known;
  llvm::SmallVector<Value*, 4> operands;
  for (Value* operand : value->operands()) {
    auto* instruction = llvm::dyn_cast<Instruction>(operand);
    const bool ambient = instruction == nullptr || thread_.is_ambient(operand);
    operands.push_back(ambient ? read(operand) : compute_again(instruction));
  }
  Instruction* copy = value->clone();
  for (unsigned i = 0; i < operands.size(); ++i) copy->setOperand(i, operands[i]);
  ir_.Insert(copy);
  return local_[value] = copy;
}

void LaneCode::emit_block(Block* block) {
  local_.clear();
  ir_.SetInsertPoint(blocks_[block]);
  const int cut = thread_.cut_of(block);
  for (Instruction& instruction : *block) {
    if (instruction.isTerminator()) break;
    if (llvm::isa<llvm::PHINode>(instruction) || thread_.is_ambient(&instruction)) continue;
    if (cut >= 0 && &instruction == thread_.cuts()[static_cast<unsigned>(cut)].call) {
      return emit_cut(thread_.cuts()[static_cast<unsigned>(cut)], static_cast<unsigned>(cut));
    }
    Instruction* copy = instruction.clone();
    copy->dropUnknownNonDebugMetadata({llvm::LLVMContext::MD_invariant_load});
    for (unsigned i = 0; i < copy->getNumOperands(); ++i) {
      copy->setOperand(i, read(instruction.getOperand(i)));
    }
    ir_.Insert(copy);
    if (!copy->getType()->isVoidTy()) write(&instruction, copy);
  }
  emit_end(block);
}

void LaneCode::emit_cut(const Cut& cut, unsigned index) {
  Value* lane = linear();
  Type* number = ir_.getInt32Ty();
  Type* address = ir_.getInt64Ty();
  if (cut.kind == CutKind::kReduction) {
    ir_.CreateStore(read(cut.call->getArgOperand(4)),
                    shell_.element(ir_, shell_.operand, number, lane));
  } else if (cut.kind == CutKind::kExchange) {
    for (unsigned i = 0; i <= kExchangeInputs; ++i) {
      if (llvm::isa<llvm::ConstantInt>(cut.exchanged(i))) continue;
      Value* array = i == 0 ? shell_.operand : shell_.word[i - 1];
      ir_.CreateStore(read(cut.exchanged(i)), shell_.element(ir_, array, number, lane));
    }
  } else if (cut.kind == CutKind::kWarp) {
    ir_.CreateStore(read(cut.call->getArgOperand(2)),
                    shell_.element(ir_, shell_.operand, number, lane));
    ir_.CreateStore(read(cut.call->getArgOperand(4)),
                    shell_.element(ir_, shell_.in, address, lane));
    ir_.CreateStore(read(cut.call->getArgOperand(5)),
                    shell_.element(ir_, shell_.out, address, lane));
  }
  for (Instruction* value : thread_.live_in(cut.resume)) {
    if (value == cut.call || thread_.is_recomputed(value)) continue;
    Type* type = memory_type(*shell_.function(), value->getType());
    Value* kept = read(value);
    if (type != value->getType()) kept = ir_.CreateZExt(kept, type);
    ir_.CreateAlignedStore(kept, shell_.slot(ir_, value, lane), llvm::Align(1));
  }
  if (shell_.is_mixed()) {
    ir_.CreateStore(ir_.getInt32(index + 1), shell_.element(ir_, shell_.next, number, lane));
  }
  ir_.CreateBr(shell_.lane_done);
}

// Assigns the phis on the edge between two blocks. All values are read before any is written.
LaneCode::Block* LaneCode::edge(Block* from, Block* to) {
  if (to->phis().empty()) return blocks_[to];
  const auto here = ir_.saveIP();
  Block* way = shell_.new_block("l.edge");
  ir_.SetInsertPoint(way);
  llvm::SmallVector<std::pair<llvm::PHINode*, Value*>, 8> values;
  for (llvm::PHINode& phi : to->phis()) {
    if (thread_.is_ambient(&phi)) continue;
    Value* incoming = phi.getIncomingValueForBlock(from);
    // A value that the block itself computed is available in its copy, which dominates this one.
    values.emplace_back(&phi, read(incoming));
  }
  for (const auto& [phi, value] : values) ir_.CreateStore(value, place(phi));
  ir_.CreateBr(blocks_[to]);
  ir_.restoreIP(here);
  return way;
}

void LaneCode::emit_end(Block* block) {
  Instruction* end = block->getTerminator();
  if (llvm::isa<llvm::ReturnInst>(end)) {
    if (shell_.is_mixed()) {
      ir_.CreateStore(ir_.getInt32(kRegionEnded),
                      shell_.element(ir_, shell_.next, ir_.getInt32Ty(), linear()));
    }
    ir_.CreateBr(shell_.lane_done);
    return;
  }
  if (llvm::isa<llvm::UnreachableInst>(end)) {
    ir_.CreateUnreachable();
    return;
  }
  Instruction* copy = end->clone();
  copy->dropUnknownNonDebugMetadata();
  for (unsigned i = 0; i < copy->getNumOperands(); ++i) {
    Value* operand = end->getOperand(i);
    if (auto* target = llvm::dyn_cast<llvm::BasicBlock>(operand)) {
      copy->setOperand(i, edge(block, target));
    } else {
      copy->setOperand(i, read(operand));
    }
  }
  ir_.Insert(copy);
}

unsigned LaneCode::entry_at(Block* block) {
  unsigned& number = entries_[block];
  if (number != 0) return number;
  number = static_cast<unsigned>(entries_.size());
  const unsigned result = number;
  Block* entry = shell_.new_block("lane.entry");
  dispatch_->addCase(ir_.getInt32(result), entry);
  ir_.SetInsertPoint(entry);
  Value* of_slice =
      ir_.CreateSub(shell_.variable(ir_, shell_.lane_x), shell_.variable(ir_, shell_.lane_base));
  of_slice = ir_.CreateZExt(of_slice, ir_.getInt64Ty());
  for (Instruction* value : thread_.live_in(block)) {
    llvm::AllocaInst* spill = spill_place(value);
    Type* type = llvm::cast<llvm::ArrayType>(spill->getAllocatedType())->getElementType();
    Value* found = ir_.CreateLoad(type, ir_.CreateInBoundsGEP(type, spill, of_slice));
    if (type != value->getType()) found = ir_.CreateTrunc(found, value->getType());
    ir_.CreateStore(found, place(value));
  }
  ir_.CreateBr(blocks_[block]);
  return result;
}

}  // namespace gpurun::emulated
