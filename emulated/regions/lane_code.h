// LaneCode: the code of a region for one lane at a time, in the thread's own types. It does what
// SliceCode cannot do together. Lanes may enter it wherever a slice can diverge.
#pragma once

#include "emulated/regions/region_shell.h"

namespace gpurun::emulated {

class LaneCode {
 public:
  using Value = llvm::Value;
  using Block = llvm::BasicBlock;

  explicit LaneCode(RegionShell& shell);
  // Emits the code of all blocks, entered at the first. Called once, before entry_at().
  void emit();
  // The entry number at which lanes continue when they leave their slice at the start of the
  // thread's `block`. spill_place(): the array in which the slice leaves a value that is live
  // there.
  unsigned entry_at(Block* block);
  llvm::AllocaInst* spill_place(const llvm::Instruction* value);

 private:
  Value* read(Value* value);
  void write(const llvm::Instruction* instruction, Value* value);
  llvm::AllocaInst* place(const llvm::Instruction* value);
  Value* linear();
  void emit_resume();
  void emit_block(Block* block);
  void emit_end(Block* block);
  void emit_cut(const Cut& cut, unsigned index);
  Block* edge(Block* from, Block* to);
  Value* result_of(const Cut& cut);
  Value* compute_again(llvm::Instruction* value);

  RegionShell& shell_;
  const ThreadCode& thread_;
  llvm::IRBuilder<> ir_;
  llvm::DenseMap<const Block*, Block*> blocks_;
  llvm::DenseMap<const Value*, llvm::AllocaInst*> places_;
  llvm::DenseMap<const Value*, llvm::AllocaInst*> spills_;
  llvm::DenseMap<const Value*, Value*> local_;  // For the block being emitted.
  llvm::DenseMap<const Block*, unsigned> entries_;
  llvm::SwitchInst* dispatch_ = nullptr;
};

}  // namespace gpurun::emulated
