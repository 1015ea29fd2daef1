// RegionShell: the function of one region without the code of its lanes. It has the loops over
// rows, slices and single lanes, and the values that both kinds of code use.
//
//  rows of the block: lanes with the same %tid.y and %tid.z
//    whole slices of a row: SliceCode
//    single lanes: the rest of a row, and lanes of a slice that diverge: LaneCode
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "emulated/regions/thread_code.h"

namespace gpurun::emulated {

class RegionShell {
 public:
  using Value = llvm::Value;
  using Block = llvm::BasicBlock;

  // Adds the function `name` to the thread code's module. The region continues after the cut number
  // index - 1.
  RegionShell(const ThreadCode& code, unsigned index, const llvm::Twine& name);

  const ThreadCode& thread_code() const { return thread_; }
  unsigned index() const { return index_; }
  llvm::Function* function() const { return function_; }
  llvm::LLVMContext& context() const { return function_->getContext(); }
  llvm::IRBuilder<>& entry() { return entry_; }
  // Blocks of the thread's code that lanes of the region can reach, the first one first.
  const std::vector<Block*>& blocks() const { return blocks_; }
  // Whether lanes may end in different ways.
  bool is_mixed() const { return mixed_; }

  // The value of a block constant in this function.
  Value* constant(Value* value);
  Value* i32(std::uint32_t value) { return entry_.getInt32(value); }
  Value* i64(std::uint64_t value) { return entry_.getInt64(value); }

  // The places of the lane's variables.
  llvm::AllocaInst *y = nullptr, *z = nullptr, *row_first = nullptr;
  llvm::AllocaInst* slice_x = nullptr;  // The slice's first lane.
  // For lanes that run singly: their range, their slice, and their entry.
  llvm::AllocaInst *lane_x = nullptr, *lane_end = nullptr;
  llvm::AllocaInst *lane_base = nullptr, *lane_entry = nullptr;

  // The frame, loaded once.
  Value *thread = nullptr, *slots = nullptr, *local = nullptr, *next = nullptr, *operand = nullptr;
  Value *result = nullptr, *second = nullptr, *word[kExchangeInputs] = {};
  Value *in = nullptr, *out = nullptr, *capacity = nullptr;

  // The blocks where the code of slices and lanes begins, and where it goes when it is done.
  Block *slice_begin = nullptr, *slice_done = nullptr;
  Block *lanes_head = nullptr, *lane_begin = nullptr, *lane_done = nullptr;

  Block* new_block(const llvm::Twine& name) { return Block::Create(context(), name, function_); }
  Value* variable(llvm::IRBuilder<>& at, llvm::AllocaInst* place) {
    return at.CreateLoad(place->getAllocatedType(), place);
  }
  // Element `lane` of one of the frame's arrays.
  Value* element(llvm::IRBuilder<>& at, Value* array, llvm::Type* type, Value* lane);
  Value* slot(llvm::IRBuilder<>& at, const llvm::Instruction* value, Value* lane);
  Value* local_place(llvm::IRBuilder<>& at, const llvm::AllocaInst* variable, Value* lane);

 private:
  void find_blocks();
  void create_loops();
  void say_lane(llvm::IRBuilder<>& at, Value* x);

  const ThreadCode& thread_;
  const unsigned index_;
  llvm::Function* function_;
  llvm::IRBuilder<> entry_;
  Block* first_ = nullptr;
  std::vector<Block*> blocks_;
  bool mixed_ = false;
  std::uint32_t single_next_ = kRegionEnded;
  llvm::DenseMap<const Value*, Value*> constants_;
};

}  // namespace gpurun::emulated
