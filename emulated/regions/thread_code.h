// ThreadCode: the optimised code of one CUDA thread, analysed for running many threads together. It
// knows where the thread waits (cuts), which values are the same for all lanes, and which values
// live across a wait.
//
// A slice is slice_lanes() lanes with neighbouring %tid.x that run the same instructions together.
// In a slice every branch goes one way. Where its lanes disagree, it continues in the lanes' own
// code and does not return before the next cut. So a value's shape depends on its operands alone.
#pragma once

#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/Function.h>
#include <llvm/IR/Instructions.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "emulated/runtime/device_abi.h"

namespace gpurun::emulated {

// How a value differs between the lanes of a slice.
struct Shape {
  enum class Kind : std::uint8_t { kUnset, kUniform, kAffine, kVarying };
  Kind kind = Kind::kUnset;
  // kAffine: lane l has the first lane's value + l * stride. Never 0.
  std::int64_t stride = 0;

  static Shape uniform() { return {Kind::kUniform, 0}; }
  static Shape varying() { return {Kind::kVarying, 0}; }
  static Shape affine(std::int64_t stride) {
    return stride == 0 ? uniform() : Shape{Kind::kAffine, stride};
  }
  bool is_uniform() const { return kind == Kind::kUniform; }
  bool is_affine() const { return kind == Kind::kAffine; }
  bool is_varying() const { return kind == Kind::kVarying; }
  bool operator==(const Shape& other) const { return kind == other.kind && stride == other.stride; }
};

// The value that a load from the ThreadContext gives.
enum class Leaf : std::uint8_t { kNone, kX, kY, kZ, kLinear };

// A wait. The call is the last instruction of `block` before a branch to `resume`.
struct Cut {
  llvm::CallInst* call = nullptr;
  llvm::BasicBlock* block = nullptr;
  llvm::BasicBlock* resume = nullptr;
  CutKind kind = CutKind::kBarrier;
  std::uint32_t id = 0, count = 0, reduction = 0;  // Barriers.
  llvm::Constant* function = nullptr;              // Warp operations.
  std::uint32_t results = 0;                       // Exchanges.

  // An exchange's member mask (0) and inputs (from 1), as the call has them.
  llvm::Value* exchanged(unsigned index) const {
    return call->getArgOperand(index == 0 ? 2 : 3 + index);
  }
};

// Borrows the function, and splits its blocks. One thread.
class ThreadCode {
 public:
  // kRefused: something in it needs a thread with a stack of its own. The message says what.
  static Result<std::unique_ptr<ThreadCode>> analyse(llvm::Function& function,
                                                     unsigned slice_lanes);
  unsigned slice_lanes() const { return slice_lanes_; }

  llvm::Function& function() const { return function_; }
  const std::vector<Cut>& cuts() const { return cuts_; }
  // The index of the cut that ends `block`, or -1.
  int cut_of(const llvm::BasicBlock* block) const;

  Shape shape(const llvm::Value* value) const;
  Leaf leaf(const llvm::Value* value) const;
  // Whether it is computed from the block and the parameters alone, by operations that cannot fail.
  bool is_block_constant(const llvm::Value* value) const;
  // Whether it is available everywhere: constants, block constants, leaves, places of local memory.
  bool is_ambient(const llvm::Value* value) const;
  // Offset in the lane's local memory.
  std::uint64_t local_offset(const llvm::AllocaInst* variable) const;
  std::uint64_t local_bytes() const { return local_bytes_; }

  // Guarded instructions, with a shape that holds only if a condition does. The condition is tested
  // on the only way into `block`. For instructions at the start of `block` it protects their own
  // shape. For instructions before it, it protects the shape of values computed from them.
  llvm::ArrayRef<llvm::Instruction*> guards_at(const llvm::BasicBlock* block) const;
  bool is_guarded(const llvm::Instruction* value) const {
    return small_guards_.contains(value) || own_guards_.contains(value);
  }
  // Whether the value must be small, because it is extended elsewhere. `*is_unsigned`: as an
  // unsigned number, else as a signed one. Also true for values between a guarded value and its
  // extension. They are tested again after a cut.
  bool must_be_small(const llvm::Instruction* value, bool* is_unsigned) const {
    *is_unsigned = small_.lookup(value) == Guard::kSmallUnsigned;
    return small_.contains(value);
  }
  // Whether it is a mask or shift that the slice must not cross.
  bool must_not_cross(const llvm::Instruction* value) const { return own_guards_.contains(value); }
  // Whether the lanes of a slice may disagree at the end of `block`, which then holds nothing else.
  bool diverges(const llvm::BasicBlock* block) const { return diverging_.contains(block); }

  // Instructions that are live where `block` begins, without ambient ones and its own phis.
  llvm::ArrayRef<llvm::Instruction*> live_in(const llvm::BasicBlock* block) const;
  // Whether it is used in another block than its own, or is a phi.
  bool is_shared(const llvm::Instruction* value) const { return shared_.contains(value); }
  // Whether it is recomputed after a cut and not kept in a slot.
  bool is_recomputed(const llvm::Instruction* value) const;
  // Offset in the arrays of one lane.
  std::uint64_t slot_offset(const llvm::Instruction* value) const;
  std::uint64_t slot_bytes() const { return slot_bytes_; }

 private:
  enum class Guard : std::uint8_t { kNone, kSmallUnsigned, kSmallSigned };

  ThreadCode(llvm::Function& function, unsigned slice_lanes)
      : function_(function), slice_lanes_(slice_lanes) {}
  Status find_cuts();
  Status check_call(llvm::CallInst& call, llvm::SmallVectorImpl<llvm::CallInst*>& cuts);
  Status check_memory(llvm::Instruction& instruction);
  Status describe_cut(Cut& cut);
  Status find_leaves();
  Status place_local_memory();
  void find_shapes();
  Shape next_shape(llvm::Instruction& instruction) const;
  Shape binary_shape(llvm::BinaryOperator& instruction) const;
  Shape masked_shape(llvm::BinaryOperator& instruction, Shape left) const;
  Shape address_shape(llvm::GetElementPtrInst& address) const;
  Shape extended_shape(llvm::CastInst& cast) const;
  void find_guards();
  void split_at_guards();
  void split_at_divergence();
  void find_lifetimes();
  Status place_slots();
  unsigned recomputing_cost(const llvm::Value* value, unsigned most) const;

  llvm::Function& function_;
  const unsigned slice_lanes_;
  std::vector<Cut> cuts_;
  llvm::DenseMap<const llvm::BasicBlock*, int> cut_of_;
  llvm::DenseMap<const llvm::Value*, Leaf> leaves_;
  llvm::DenseMap<const llvm::Value*, std::uint64_t> local_;
  std::uint64_t local_bytes_ = 0;
  mutable llvm::DenseMap<const llvm::Value*, bool> block_constant_;
  llvm::DenseMap<const llvm::Value*, Shape> shapes_;
  llvm::DenseMap<const llvm::Instruction*, Guard> small_;
  llvm::DenseSet<const llvm::Instruction*> small_guards_;
  llvm::DenseSet<const llvm::Instruction*> own_guards_;
  llvm::DenseMap<const llvm::BasicBlock*, llvm::SmallVector<llvm::Instruction*, 2>> guards_at_;
  llvm::DenseSet<const llvm::BasicBlock*> diverging_;
  llvm::DenseMap<const llvm::BasicBlock*, llvm::SmallVector<llvm::Instruction*, 8>> live_in_;
  llvm::DenseSet<const llvm::Instruction*> shared_;
  llvm::DenseMap<const llvm::Instruction*, std::uint64_t> slots_;
  std::uint64_t slot_bytes_ = 0;
};

// Strips constants that are added to `value`, and stores their sum in `*added`. It stops where
// value or sum are too wide for a guard on the result to hold for the sum.
llvm::Value* without_constant(llvm::Value* value, std::int64_t* added);

// Whether a vector can hold the type.
bool fits_vector(const llvm::Type* type);
// The type of a value in slots and where slices diverge. It has whole bytes, because vectors of
// other integers have no place for each element.
llvm::Type* memory_type(const llvm::Function& function, llvm::Type* type);
// Bytes of a value in memory.
std::uint64_t memory_bytes(const llvm::Function& function, llvm::Type* type);

}  // namespace gpurun::emulated
