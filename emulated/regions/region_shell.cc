// The loops of a region.
#include "emulated/regions/region_shell.h"

#include <llvm/IR/CFG.h>
#include <llvm/IR/Module.h>

namespace gpurun::emulated {

using llvm::IRBuilder;
using llvm::Type;
using llvm::Value;

RegionShell::RegionShell(const ThreadCode& code, unsigned index, const llvm::Twine& name)
    : thread_(code), index_(index), entry_(code.function().getContext()) {
  llvm::LLVMContext& context = code.function().getContext();
  Type* pointer = llvm::PointerType::get(context, 0);
  Type* number = Type::getInt32Ty(context);
  function_ = llvm::Function::Create(
      llvm::FunctionType::get(number, {pointer, pointer, number, number}, false),
      llvm::GlobalValue::InternalLinkage, name, code.function().getParent());
  function_->addFnAttr(llvm::Attribute::NoUnwind);
  function_->addFnAttr(llvm::Attribute::NullPointerIsValid);
  entry_.SetInsertPoint(new_block("entry"));
  thread = function_->getArg(0);
  find_blocks();
  create_loops();
}

void RegionShell::find_blocks() {
  first_ = index_ == 0 ? &thread_.function().getEntryBlock() : thread_.cuts()[index_ - 1].resume;
  llvm::DenseSet<Block*> seen{first_};
  blocks_.push_back(first_);
  llvm::DenseSet<std::uint32_t> ends;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const int cut = thread_.cut_of(blocks_[i]);
    if (cut >= 0) {
      ends.insert(static_cast<std::uint32_t>(cut) + 1);
      continue;
    }
    if (llvm::isa<llvm::ReturnInst>(blocks_[i]->getTerminator())) ends.insert(kRegionEnded);
    for (Block* behind : llvm::successors(blocks_[i])) {
      if (seen.insert(behind).second) blocks_.push_back(behind);
    }
  }
  mixed_ = ends.size() > 1;
  if (ends.size() == 1) single_next_ = *ends.begin();
}

void RegionShell::say_lane(IRBuilder<>& at, Value* x) {
  Value* place =
      at.CreateConstInBoundsGEP1_64(at.getInt8Ty(), thread, offsetof(ThreadContext, thread_linear));
  // Volatile, because the code that runs after a fault reads it.
  at.CreateStore(at.CreateAdd(variable(at, row_first), x), place, true);
}

void RegionShell::create_loops() {
  Type* number = entry_.getInt32Ty();
  Type* pointer = entry_.getPtrTy();
  const auto variable_of = [&] { return entry_.CreateAlloca(number); };
  llvm::AllocaInst* row = variable_of();
  llvm::AllocaInst* row_end = variable_of();
  y = variable_of(), z = variable_of(), row_first = variable_of(), slice_x = variable_of();
  lane_x = variable_of(), lane_end = variable_of(), lane_base = variable_of();
  lane_entry = variable_of();
  Value* frame = function_->getArg(1);
  const auto field = [&](Value* base, Type* type, std::uint64_t offset) -> Value* {
    auto* load = entry_.CreateLoad(
        type, entry_.CreateConstInBoundsGEP1_64(entry_.getInt8Ty(), base, offset));
    load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(context(), {}));
    return load;
  };
  slots = field(frame, pointer, offsetof(RegionFrame, slots));
  local = field(frame, pointer, offsetof(RegionFrame, local));
  next = field(frame, pointer, offsetof(RegionFrame, next));
  operand = field(frame, pointer, offsetof(RegionFrame, operand));
  result = field(frame, pointer, offsetof(RegionFrame, result));
  second = field(frame, pointer, offsetof(RegionFrame, second));
  for (unsigned i = 0; i < kExchangeInputs; ++i) {
    word[i] = field(frame, pointer, offsetof(RegionFrame, word) + i * sizeof(std::uint32_t*));
  }
  in = field(frame, pointer, offsetof(RegionFrame, in));
  out = field(frame, pointer, offsetof(RegionFrame, out));
  capacity = field(frame, entry_.getInt64Ty(), offsetof(RegionFrame, capacity));
  Value* block = field(thread, pointer, offsetof(ThreadContext, block));
  Value* x_count = field(block, number, offsetof(BlockContext, block_dim));
  Value* y_count = field(block, number, offsetof(BlockContext, block_dim) + 4);
  Value* begin = function_->getArg(2);
  Value* end = function_->getArg(3);
  entry_.CreateStore(entry_.CreateUDiv(begin, x_count), row);

  Block* row_head = new_block("row");
  Block* slice_head = new_block("slices");
  Block* rest = new_block("rest");
  Block* rest_lanes = new_block("rest.lanes");
  Block* row_done = new_block("row.done");
  Block* done = new_block("done");
  slice_begin = new_block("slice"), slice_done = new_block("slice.done");
  lanes_head = new_block("lanes"), lane_begin = new_block("lane");
  lane_done = new_block("lane.done");
  Block* lanes_over = new_block("lanes.over");

  IRBuilder<> at(row_head);
  Value* row_now = variable(at, row);
  Value* first = at.CreateMul(row_now, x_count);
  at.CreateStore(first, row_first);
  Value* later = at.CreateICmpUGT(begin, first);
  at.CreateStore(at.CreateSelect(later, at.CreateSub(begin, first), i32(0)), slice_x);
  Value* left = at.CreateSub(end, first);
  at.CreateStore(at.CreateSelect(at.CreateICmpULT(left, x_count), left, x_count), row_end);
  at.CreateStore(at.CreateURem(row_now, y_count), y);
  at.CreateStore(at.CreateUDiv(row_now, y_count), z);
  at.CreateBr(slice_head);

  at.SetInsertPoint(slice_head);
  Value* room = at.CreateSub(variable(at, row_end), variable(at, slice_x));
  at.CreateCondBr(at.CreateICmpUGE(room, i32(thread_.slice_lanes())), slice_begin, rest);
  at.SetInsertPoint(rest);
  at.CreateCondBr(at.CreateICmpEQ(room, i32(0)), row_done, rest_lanes);
  at.SetInsertPoint(rest_lanes);
  at.CreateStore(i32(0), lane_entry);
  at.CreateStore(variable(at, slice_x), lane_x);
  at.CreateStore(variable(at, row_end), lane_end);
  at.CreateBr(lanes_head);

  at.SetInsertPoint(slice_begin);
  say_lane(at, variable(at, slice_x));
  at.SetInsertPoint(slice_done);
  at.CreateStore(at.CreateAdd(variable(at, slice_x), i32(thread_.slice_lanes())), slice_x);
  at.CreateBr(slice_head);

  at.SetInsertPoint(lanes_head);
  Value* more = at.CreateICmpULT(variable(at, lane_x), variable(at, lane_end));
  at.CreateCondBr(more, lane_begin, lanes_over);
  at.SetInsertPoint(lanes_over);
  at.CreateStore(variable(at, lane_end), slice_x);
  at.CreateBr(slice_head);
  at.SetInsertPoint(lane_begin);
  say_lane(at, variable(at, lane_x));
  at.SetInsertPoint(lane_done);
  at.CreateStore(at.CreateAdd(variable(at, lane_x), i32(1)), lane_x);
  at.CreateBr(lanes_head);

  at.SetInsertPoint(row_done);
  Value* row_next = at.CreateAdd(variable(at, row), i32(1));
  at.CreateStore(row_next, row);
  at.CreateCondBr(at.CreateICmpULT(at.CreateMul(row_next, x_count), end), row_head, done);
  at.SetInsertPoint(done);
  at.CreateRet(i32(mixed_ ? kRegionMixed : single_next_));
  entry_.SetInsertPoint(entry_.CreateBr(row_head));
}

Value* RegionShell::constant(Value* value) {
  if (llvm::isa<llvm::Constant>(value)) return value;
  if (llvm::isa<llvm::Argument>(value)) return thread;
  Value*& known = constants_[value];
  if (known != nullptr) return known;
  auto* original = llvm::cast<llvm::Instruction>(value);
  llvm::SmallVector<Value*, 4> operands;
  for (Value* one : original->operands()) operands.push_back(constant(one));
  llvm::Instruction* copy = original->clone();
  for (unsigned i = 0; i < operands.size(); ++i) copy->setOperand(i, operands[i]);
  entry_.Insert(copy);
  return constants_[value] = copy;  // The map may have grown.
}

Value* RegionShell::element(IRBuilder<>& at, Value* array, Type* type, Value* lane) {
  return at.CreateInBoundsGEP(type, array, at.CreateZExt(lane, at.getInt64Ty()));
}

Value* RegionShell::slot(IRBuilder<>& at, const llvm::Instruction* value, Value* lane) {
  const std::uint64_t bytes = memory_bytes(*function_, value->getType());
  Value* offset = at.CreateMul(capacity, i64(thread_.slot_offset(value)));
  Value* of_lane = at.CreateMul(at.CreateZExt(lane, at.getInt64Ty()), i64(bytes));
  return at.CreateInBoundsGEP(at.getInt8Ty(), slots, at.CreateAdd(offset, of_lane));
}

Value* RegionShell::local_place(IRBuilder<>& at, const llvm::AllocaInst* variable, Value* lane) {
  Value* offset = at.CreateMul(at.CreateZExt(lane, at.getInt64Ty()), i64(thread_.local_bytes()));
  offset = at.CreateAdd(offset, i64(thread_.local_offset(variable)));
  return at.CreateInBoundsGEP(at.getInt8Ty(), local, offset);
}

}  // namespace gpurun::emulated
