// LaneCode: the code of a region for one lane at a time, in the thread's own types: what SliceCode
// cannot do together is done here, and lanes may enter it wherever a slice can part.
#pragma once

#include "server/emulated/regions/region_shell.h"

namespace gpurun::emulated {

class LaneCode {
 public:
  using Value = llvm::Value;
  using Block = llvm::BasicBlock;

  explicit LaneCode(RegionShell& shell);
  // The code of all blocks, entered at the first. Once, before entry_at().
  void emit();
  // Where lanes continue that leave their slice where the thread's `block` begins: an entry number,
  // and for each value that is live there the array that the slice leaves it in.
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
  llvm::DenseMap<const Value*, Value*> local_;  // Of the block that is being written.
  llvm::DenseMap<const Block*, unsigned> entries_;
  llvm::SwitchInst* dispatch_ = nullptr;
};

}  // namespace gpurun::emulated
