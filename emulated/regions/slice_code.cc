// The places of slices' values, and the frame of their code: blocks, branches, guards, cuts.
#include "emulated/regions/slice_code.h"

#include <llvm/IR/CFG.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>

namespace gpurun::emulated {

using llvm::Instruction;
using llvm::Type;
using llvm::Value;

namespace {

Type* vector_type(Type* type, unsigned lanes) { return llvm::FixedVectorType::get(type, lanes); }

// 0, stride, 2 * stride, ... as numbers of `type`.
llvm::Constant* steps(llvm::IntegerType* type, std::int64_t stride, unsigned lanes) {
  llvm::SmallVector<llvm::Constant*, kSliceLanes> each;
  for (unsigned i = 0; i < lanes; ++i) {
    each.push_back(llvm::ConstantInt::get(type, static_cast<std::uint64_t>(stride * i), true));
  }
  return llvm::ConstantVector::get(each);
}

}  // namespace

SliceCode::SliceCode(RegionShell& shell, LaneCode& lanes)
    : shell_(shell),
      lanes_(lanes),
      thread_(shell.thread_code()),
      lane_count_(thread_.slice_lanes()),
      ir_(shell.context()) {}

Value* SliceCode::linear() {
  return ir_.CreateAdd(shell_.variable(ir_, shell_.row_first),
                       shell_.variable(ir_, shell_.slice_x));
}

llvm::AllocaInst* SliceCode::place(const Instruction* value) {
  llvm::AllocaInst*& known = places_[value];
  if (known != nullptr) return known;
  Type* type = value->getType();
  if (thread_.shape(value).is_varying()) {
    type = fits_vector(type) ? vector_type(type, lane_count_)
                             : llvm::ArrayType::get(type, lane_count_);
  }
  return known = shell_.entry().CreateAlloca(type);
}

SliceCode::Lanes SliceCode::read(Value* value) {
  Lanes lanes;
  switch (thread_.leaf(value)) {
    case Leaf::kX:
      lanes.one = shell_.variable(ir_, shell_.slice_x);
      return lanes;
    case Leaf::kY:
      lanes.one = shell_.variable(ir_, shell_.y);
      return lanes;
    case Leaf::kZ:
      lanes.one = shell_.variable(ir_, shell_.z);
      return lanes;
    case Leaf::kLinear:
      lanes.one = linear();
      return lanes;
    case Leaf::kNone:
      break;
  }
  if (auto* variable = llvm::dyn_cast<llvm::AllocaInst>(value)) {
    lanes.one = shell_.local_place(ir_, variable, linear());
    return lanes;
  }
  if (thread_.is_block_constant(value)) {
    lanes.one = shell_.constant(value);
    return lanes;
  }
  if (const auto known = local_.find(value); known != local_.end()) return known->second;
  llvm::AllocaInst* from = place(llvm::cast<Instruction>(value));
  if (!thread_.shape(value).is_varying()) {
    lanes.one = ir_.CreateLoad(from->getAllocatedType(), from);
  } else if (fits_vector(value->getType())) {
    lanes.vector = ir_.CreateLoad(from->getAllocatedType(), from);
  } else {
    for (unsigned i = 0; i < lane_count_; ++i) {
      lanes.each.push_back(ir_.CreateLoad(
          value->getType(), ir_.CreateConstInBoundsGEP2_64(from->getAllocatedType(), from, 0, i)));
    }
  }
  return lanes;
}

void SliceCode::store_place(const Instruction* instruction, const Lanes& lanes) {
  llvm::AllocaInst* to = place(instruction);
  if (lanes.one != nullptr) {
    ir_.CreateStore(lanes.one, to);
  } else if (lanes.vector != nullptr) {
    ir_.CreateStore(lanes.vector, to);
  } else {
    for (unsigned i = 0; i < lane_count_; ++i) {
      ir_.CreateStore(lanes.each[i],
                      ir_.CreateConstInBoundsGEP2_64(to->getAllocatedType(), to, 0, i));
    }
  }
}

void SliceCode::write(Instruction* instruction, Lanes lanes) {
  if (thread_.is_shared(instruction)) store_place(instruction, lanes);
  local_[instruction] = std::move(lanes);
}

Value* SliceCode::pack(llvm::ArrayRef<Value*> each) {
  Value* all = llvm::PoisonValue::get(vector_type(each[0]->getType(), lane_count_));
  for (unsigned i = 0; i < lane_count_; ++i) {
    all = ir_.CreateInsertElement(all, each[i], static_cast<std::uint64_t>(i));
  }
  return all;
}

Value* SliceCode::vector_of(const Lanes& lanes, Type* type, std::int64_t stride) {
  if (lanes.vector != nullptr) return lanes.vector;
  if (lanes.one == nullptr) return pack(lanes.each);
  if (type->isPointerTy() && stride != 0) {
    return ir_.CreateGEP(ir_.getInt8Ty(), lanes.one, steps(ir_.getInt64Ty(), stride, lane_count_));
  }
  Value* all = ir_.CreateVectorSplat(lane_count_, lanes.one);
  if (stride == 0) return all;
  return ir_.CreateAdd(all, steps(llvm::cast<llvm::IntegerType>(type), stride, lane_count_));
}

Value* SliceCode::vector(Value* value) {
  return vector_of(read(value), value->getType(), thread_.shape(value).stride);
}

// In the form of slots and diverging lanes.
Value* SliceCode::kept_vector(Value* value) {
  Type* kept = memory_type(*shell_.function(), value->getType());
  Value* all = vector(value);
  return kept == value->getType() ? all : ir_.CreateZExt(all, vector_type(kept, lane_count_));
}

Value* SliceCode::one(Value* value) { return lane(value, 0); }

Value* SliceCode::lane(Value* value, unsigned number) {
  if (llvm::isa<llvm::BasicBlock>(value) || llvm::isa<llvm::MetadataAsValue>(value)) return value;
  const Lanes lanes = read(value);
  if (lanes.vector != nullptr) {
    return ir_.CreateExtractElement(lanes.vector, static_cast<std::uint64_t>(number));
  }
  if (lanes.one == nullptr) return lanes.each[number];
  const std::int64_t distance = thread_.shape(value).stride * number;
  if (distance == 0) return lanes.one;
  if (value->getType()->isPointerTy()) {
    return ir_.CreateGEP(ir_.getInt8Ty(), lanes.one,
                         ir_.getInt64(static_cast<std::uint64_t>(distance)));
  }
  return ir_.CreateAdd(
      lanes.one,
      llvm::ConstantInt::get(value->getType(), static_cast<std::uint64_t>(distance), true));
}

// Blocks ------------------------------------------------------------------------------------------

void SliceCode::emit() {
  for (Block* block : shell_.blocks()) {
    blocks_[block] = shell_.new_block("s." + block->getName());
  }
  ir_.SetInsertPoint(shell_.slice_begin);
  emit_resume();
  for (Block* block : shell_.blocks()) emit_block(block);
}

// Leaves to the lanes' own code at the start of `block`.
SliceCode::Block* SliceCode::part(Block* block) {
  const auto here = ir_.saveIP();
  Block* way = shell_.new_block("part");
  ir_.SetInsertPoint(way);
  unsigned entry = 0;
  if (block != nullptr) {
    entry = lanes_.entry_at(block);
    llvm::DenseMap<const Value*, Lanes> known;
    known.swap(local_);  // Made in other blocks, they need not dominate this one.
    for (Instruction* value : thread_.live_in(block)) {
      llvm::AllocaInst* spill = lanes_.spill_place(value);
      if (fits_vector(value->getType())) {
        Value* all = kept_vector(value);
        ir_.CreateAlignedStore(all, spill, llvm::Align(1));
        continue;
      }
      for (unsigned i = 0; i < lane_count_; ++i) {
        ir_.CreateStore(lane(value, i),
                        ir_.CreateConstInBoundsGEP2_64(spill->getAllocatedType(), spill, 0, i));
      }
    }
    local_.swap(known);
  }
  Value* x = shell_.variable(ir_, shell_.slice_x);
  ir_.CreateStore(ir_.getInt32(entry), shell_.lane_entry);
  ir_.CreateStore(x, shell_.lane_base);
  ir_.CreateStore(x, shell_.lane_x);
  ir_.CreateStore(ir_.CreateAdd(x, ir_.getInt32(lane_count_)), shell_.lane_end);
  ir_.CreateBr(shell_.lanes_head);
  ir_.restoreIP(here);
  return way;
}

// Loads a value of the slot arrays, and tests whether it has the shape that the code assumes. Its
// lanes may have reached the cut on different paths.
Value* SliceCode::load_slot(Instruction* value, Lanes* lanes) {
  Type* type = value->getType();
  const Shape shape = thread_.shape(value);
  Type* kept = memory_type(*shell_.function(), type);
  Value* all = ir_.CreateAlignedLoad(vector_type(kept, lane_count_),
                                     shell_.slot(ir_, value, linear()), llvm::Align(1));
  if (kept != type) all = ir_.CreateTrunc(all, vector_type(type, lane_count_));
  if (shape.is_varying()) {
    lanes->vector = all;
    return nullptr;
  }
  lanes->one = ir_.CreateExtractElement(all, std::uint64_t{0});
  Value* expected = vector_of(*lanes, type, shape.stride);
  const auto as_numbers = [&](Value* vector) {
    if (type->isPointerTy())
      return ir_.CreatePtrToInt(vector, vector_type(ir_.getInt64Ty(), lane_count_));
    return ir_.CreateBitCast(vector,
                             vector_type(ir_.getIntNTy(type->getScalarSizeInBits()), lane_count_));
  };
  return ir_.CreateAndReduce(ir_.CreateICmpEQ(as_numbers(all), as_numbers(expected)));
}

void SliceCode::compute_again(Instruction* value, llvm::SmallVectorImpl<Value*>& conditions) {
  if (local_.contains(value)) return;
  for (Value* operand : value->operands()) {
    auto* instruction = llvm::dyn_cast<Instruction>(operand);
    if (instruction != nullptr && !thread_.is_ambient(operand)) {
      compute_again(instruction, conditions);
    }
  }
  emit_instruction(*value);
  bool is_unsigned = false;
  if (thread_.must_not_cross(value)) conditions.push_back(crosses_nothing(value));
  if (thread_.must_be_small(value, &is_unsigned)) conditions.push_back(is_small(value));
}

Value* SliceCode::result_of(const Cut& cut) {
  Type* number = ir_.getInt32Ty();
  const auto load = [&](Value* array) {
    return ir_.CreateAlignedLoad(vector_type(number, lane_count_),
                                 shell_.element(ir_, array, number, linear()), llvm::Align(4));
  };
  Value* result = load(shell_.result);
  if (cut.kind != CutKind::kExchange) return result;
  Type* wide = vector_type(ir_.getInt64Ty(), lane_count_);
  result = ir_.CreateZExt(result, wide);
  if (cut.results < 2) return result;
  return ir_.CreateOr(result, ir_.CreateShl(ir_.CreateZExt(load(shell_.second), wide), 32));
}

void SliceCode::emit_resume() {
  Block* first = shell_.blocks().front();
  llvm::SmallVector<Value*, 8> conditions;
  local_.clear();
  if (shell_.index() != 0) {
    const Cut& cut = thread_.cuts()[shell_.index() - 1];
    for (Instruction* value : thread_.live_in(first)) {
      if (thread_.is_recomputed(value)) {
        compute_again(value, conditions);
        store_place(value, local_[value]);
        continue;
      }
      Lanes lanes;
      if (value == cut.call) {
        lanes.vector = result_of(cut);
      } else if (Value* fits = load_slot(value, &lanes)) {
        conditions.push_back(fits);
      }
      local_[value] = lanes;
      store_place(value, lanes);
      bool is_unsigned = false;
      if (thread_.must_be_small(value, &is_unsigned)) conditions.push_back(is_small(value));
    }
  }
  if (conditions.empty()) {
    ir_.CreateBr(blocks_[first]);
    return;
  }
  ir_.CreateCondBr(ir_.CreateAnd(conditions), blocks_[first], part(nullptr),
                   llvm::MDBuilder(shell_.context()).createBranchWeights(2000, 1));
}

// The condition that the value also grows by its stride where it, or a sum with it, is extended.
Value* SliceCode::is_small(Instruction* value) {
  Type* type = value->getType();
  const std::int64_t span = thread_.shape(value).stride * (lane_count_ - 1);
  const auto number = [&](std::uint64_t n) { return llvm::ConstantInt::get(type, n, true); };
  bool is_unsigned = false;
  (void)thread_.must_be_small(value, &is_unsigned);
  const unsigned bits = type->getIntegerBitWidth();
  Value* low = one(value);
  if (span < 0) low = ir_.CreateAdd(low, number(static_cast<std::uint64_t>(span)));
  if (!is_unsigned) low = ir_.CreateAdd(low, number(std::uint64_t{1} << (bits - 3)));
  return ir_.CreateICmpULT(low, number(std::uint64_t{1} << (bits - 2)));
}

// The condition that no lane's bits leave the mask or cross the shift's edge, except the first
// lane's.
Value* SliceCode::crosses_nothing(Instruction* value) {
  Value* from = value->getOperand(0);
  const std::int64_t span = thread_.shape(from).stride * (lane_count_ - 1);
  const auto number = [&](std::uint64_t n) {
    return llvm::ConstantInt::get(value->getType(), n, true);
  };
  const auto bits = llvm::cast<llvm::ConstantInt>(value->getOperand(1))->getZExtValue();
  Value* first = one(from);
  if (value->getOpcode() == llvm::Instruction::And) {
    return ir_.CreateICmpULE(ir_.CreateAnd(first, number(bits)),
                             number(bits - static_cast<std::uint64_t>(span)));
  }
  Value* last = ir_.CreateAdd(first, number(static_cast<std::uint64_t>(span)));
  return ir_.CreateICmpEQ(ir_.CreateLShr(last, bits), ir_.CreateLShr(first, bits));
}

void SliceCode::emit_block(Block* block) {
  local_.clear();
  ir_.SetInsertPoint(blocks_[block]);
  const int cut = thread_.cut_of(block);
  for (Instruction& instruction : *block) {
    if (instruction.isTerminator()) break;
    if (llvm::isa<llvm::PHINode>(instruction) || thread_.is_ambient(&instruction)) continue;
    if (cut >= 0 && &instruction == thread_.cuts()[static_cast<unsigned>(cut)].call) {
      return emit_cut(thread_.cuts()[static_cast<unsigned>(cut)], static_cast<unsigned>(cut));
    }
    if (emit_last_call(instruction)) return;
    emit_instruction(instruction);
  }
  emit_end(block);
}

void SliceCode::store_next(std::uint32_t next) {
  if (!shell_.is_mixed()) return;
  ir_.CreateAlignedStore(ir_.CreateVectorSplat(lane_count_, ir_.getInt32(next)),
                         shell_.element(ir_, shell_.next, ir_.getInt32Ty(), linear()),
                         llvm::Align(4));
}

void SliceCode::emit_cut(const Cut& cut, unsigned index) {
  Value* first = linear();
  const auto leave_value = [&](Value* array, Type* type, Value* value) {
    ir_.CreateAlignedStore(vector(value), shell_.element(ir_, array, type, first), llvm::Align(4));
  };
  const auto leave = [&](Value* array, Type* type, unsigned argument) {
    leave_value(array, type, cut.call->getArgOperand(argument));
  };
  if (cut.kind == CutKind::kReduction) {
    leave(shell_.operand, ir_.getInt32Ty(), 4);
  } else if (cut.kind == CutKind::kExchange) {
    for (unsigned i = 0; i <= kExchangeInputs; ++i) {
      if (llvm::isa<llvm::ConstantInt>(cut.exchanged(i))) continue;
      leave_value(i == 0 ? shell_.operand : shell_.word[i - 1], ir_.getInt32Ty(), cut.exchanged(i));
    }
  } else if (cut.kind == CutKind::kWarp) {
    leave(shell_.operand, ir_.getInt32Ty(), 2);
    leave(shell_.in, ir_.getInt64Ty(), 4);
    leave(shell_.out, ir_.getInt64Ty(), 5);
  }
  for (Instruction* value : thread_.live_in(cut.resume)) {
    if (value == cut.call || thread_.is_recomputed(value)) continue;
    ir_.CreateAlignedStore(kept_vector(value), shell_.slot(ir_, value, first), llvm::Align(1));
  }
  store_next(index + 1);
  ir_.CreateBr(shell_.slice_done);
}

SliceCode::Block* SliceCode::edge(Block* from, Block* to) {
  if (to->phis().empty()) return blocks_[to];
  const auto here = ir_.saveIP();
  Block* way = shell_.new_block("s.edge");
  ir_.SetInsertPoint(way);
  llvm::SmallVector<std::pair<llvm::PHINode*, Lanes>, 8> values;
  for (llvm::PHINode& phi : to->phis()) {
    if (thread_.is_ambient(&phi)) continue;
    Value* incoming = phi.getIncomingValueForBlock(from);
    Lanes lanes = read(incoming);
    if (thread_.shape(&phi).is_varying() && lanes.one != nullptr) {
      const std::int64_t stride = thread_.shape(incoming).stride;
      Lanes wide;
      if (fits_vector(phi.getType())) {
        wide.vector = vector_of(lanes, phi.getType(), stride);
      } else {
        wide.each.assign(lane_count_, lanes.one);
      }
      lanes = std::move(wide);
    }
    values.emplace_back(&phi, std::move(lanes));
  }
  for (const auto& [phi, lanes] : values) store_place(phi, lanes);
  ir_.CreateBr(blocks_[to]);
  ir_.restoreIP(here);
  return way;
}

// The lanes may disagree. Those that do leave here.
void SliceCode::emit_parting(Block* block) {
  Instruction* end = block->getTerminator();
  if (auto* branch = llvm::dyn_cast<llvm::BranchInst>(end)) {
    Value* all = ir_.CreateBitCast(vector(branch->getCondition()), ir_.getIntNTy(lane_count_));
    auto* choice =
        ir_.CreateSwitch(all, part(block), 2,
                         llvm::MDBuilder(shell_.context()).createBranchWeights({1, 1000, 1000}));
    choice->addCase(llvm::ConstantInt::get(ir_.getContext(), llvm::APInt::getAllOnes(lane_count_)),
                    edge(block, branch->getSuccessor(0)));
    choice->addCase(llvm::ConstantInt::get(ir_.getContext(), llvm::APInt(lane_count_, 0)),
                    edge(block, branch->getSuccessor(1)));
    return;
  }
  auto* choice = llvm::cast<llvm::SwitchInst>(end);
  Value* all = vector(choice->getCondition());
  Value* first = one(choice->getCondition());
  Block* together = shell_.new_block("s.together");
  Value* equal =
      ir_.CreateAndReduce(ir_.CreateICmpEQ(all, ir_.CreateVectorSplat(lane_count_, first)));
  ir_.CreateCondBr(equal, together, part(block));
  ir_.SetInsertPoint(together);
  auto* copy = ir_.CreateSwitch(first, edge(block, choice->getDefaultDest()));
  for (const auto& one_case : choice->cases()) {
    copy->addCase(one_case.getCaseValue(), edge(block, one_case.getCaseSuccessor()));
  }
}

void SliceCode::emit_end(Block* block) {
  Instruction* end = block->getTerminator();
  if (llvm::isa<llvm::ReturnInst>(end)) {
    store_next(kRegionEnded);
    ir_.CreateBr(shell_.slice_done);
    return;
  }
  if (llvm::isa<llvm::UnreachableInst>(end)) {
    ir_.CreateUnreachable();
    return;
  }
  if (thread_.diverges(block)) return emit_parting(block);
  Block* behind = block->getSingleSuccessor();
  if (behind != nullptr && !thread_.guards_at(behind).empty()) {
    llvm::SmallVector<Value*, 4> conditions;
    for (Instruction* value : thread_.guards_at(behind)) {
      const bool before = value->getParent() == behind;
      conditions.push_back(before ? crosses_nothing(value) : is_small(value));
    }
    ir_.CreateCondBr(ir_.CreateAnd(conditions), blocks_[behind], part(behind),
                     llvm::MDBuilder(shell_.context()).createBranchWeights(2000, 1));
    return;
  }
  Instruction* copy = end->clone();
  copy->dropUnknownNonDebugMetadata();
  for (unsigned i = 0; i < copy->getNumOperands(); ++i) {
    Value* operand = end->getOperand(i);
    if (auto* target = llvm::dyn_cast<llvm::BasicBlock>(operand)) {
      copy->setOperand(i, edge(block, target));
    } else {
      copy->setOperand(i, one(operand));
    }
  }
  ir_.Insert(copy);
}

}  // namespace gpurun::emulated
