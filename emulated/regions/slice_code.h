// SliceCode: the code of a region for the lanes of a slice together. A value that is equal in all
// lanes is computed once. A value that grows by a constant from lane to lane is computed for the
// first lane. The rest is computed in vectors, or lane by lane and in lane order where no vector
// instruction does it.
//
// Lanes that disagree about a branch continue in LaneCode. So do lanes with a value that does not
// grow by its constant (a wrap at 32 bits).
#pragma once

#include "emulated/regions/lane_code.h"
#include "emulated/regions/region_shell.h"

namespace gpurun::emulated {

class SliceCode {
 public:
  using Value = llvm::Value;
  using Block = llvm::BasicBlock;

  SliceCode(RegionShell& shell, LaneCode& lanes);
  // After LaneCode::emit().
  void emit();

 private:
  // A value of all lanes, in the form that its shape and type allow.
  struct Lanes {
    Value* one = nullptr;     // Uniform and affine: the first lane's.
    Value* vector = nullptr;  // Varying, of a type that fits.
    llvm::SmallVector<Value*, kSliceLanes> each;
  };

  Lanes read(Value* value);
  void write(llvm::Instruction* instruction, Lanes lanes);
  void store_place(const llvm::Instruction* instruction, const Lanes& lanes);
  llvm::AllocaInst* place(const llvm::Instruction* value);
  Value* one(Value* value);
  Value* vector(Value* value);
  Value* kept_vector(Value* value);
  Value* lane(Value* value, unsigned number);
  Value* linear();
  Value* vector_of(const Lanes& lanes, llvm::Type* type, std::int64_t stride);
  Value* pack(llvm::ArrayRef<Value*> each);

  void emit_resume();
  Value* result_of(const Cut& cut);
  Value* load_slot(llvm::Instruction* value, Lanes* lanes);
  void compute_again(llvm::Instruction* value, llvm::SmallVectorImpl<Value*>& conditions);
  void emit_block(Block* block);
  Value* is_small(llvm::Instruction* value);
  Value* crosses_nothing(llvm::Instruction* value);
  void emit_instruction(llvm::Instruction& instruction);
  Value* emit_once(llvm::Instruction& instruction);
  bool emit_vector(llvm::Instruction& instruction);
  Value* emit_vector_call(llvm::CallInst& call);
  bool emit_vector_memory(llvm::Instruction& instruction);
  bool emit_last_call(llvm::Instruction& instruction);
  void emit_each(llvm::Instruction& instruction);
  void emit_cut(const Cut& cut, unsigned index);
  void emit_end(Block* block);
  void emit_parting(Block* block);
  void store_next(std::uint32_t next);
  Block* edge(Block* from, Block* to);
  Block* part(Block* block);

  RegionShell& shell_;
  LaneCode& lanes_;
  const ThreadCode& thread_;
  const unsigned lane_count_;  // Of a slice.
  llvm::IRBuilder<> ir_;
  llvm::DenseMap<const Block*, Block*> blocks_;
  llvm::DenseMap<const Value*, llvm::AllocaInst*> places_;
  llvm::DenseMap<const Value*, Lanes> local_;  // For the block being emitted.
};

}  // namespace gpurun::emulated
