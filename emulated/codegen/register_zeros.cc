// Register zeros: which registers need one, and the latest block that is early enough.
#include "emulated/codegen/register_zeros.h"

#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/SmallPtrSet.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/CFG.h>
#include <llvm/IR/CycleInfo.h>
#include <llvm/IR/Dominators.h>
#include <llvm/IR/IRBuilder.h>

namespace gpurun::emulated {
namespace {

using llvm::BasicBlock;
using llvm::Instruction;

class RegisterZeros {
 public:
  explicit RegisterZeros(llvm::Function& function)
      : entry_(function.getEntryBlock()), dominators_(function) {
    cycles_.compute(function);
  }

  void place(llvm::AllocaInst& slot) {
    collect(slot);
    if (loads_.empty() || (stores_.size() == 1 && stored_before_all_loads())) return;
    if (may_be_read_unwritten()) store_zero(slot);
  }

 private:
  void collect(llvm::AllocaInst& slot) {
    loads_.clear();
    stores_.clear();
    for (llvm::User* user : slot.users()) {
      auto* access = llvm::cast<Instruction>(user);
      (llvm::isa<llvm::LoadInst>(access) ? loads_ : stores_).push_back(access);
    }
  }

  bool stored_before_all_loads() const {
    for (Instruction* load : loads_) {
      if (!dominators_.dominates(stores_.front(), load)) return false;
    }
    return true;
  }

  // Walks back from the loads that no store in their block precedes, up to the blocks with stores.
  bool may_be_read_unwritten() const {
    llvm::SmallDenseMap<const BasicBlock*, Instruction*, 16> first_store;
    for (Instruction* store : stores_) {
      Instruction*& first = first_store[store->getParent()];
      if (first == nullptr || store->comesBefore(first)) first = store;
    }
    llvm::SmallPtrSet<const BasicBlock*, 32> seen;
    llvm::SmallVector<const BasicBlock*, 32> waiting;
    const auto visit = [&](const BasicBlock* block) {
      if (seen.insert(block).second) waiting.push_back(block);
    };
    for (Instruction* load : loads_) {
      const auto store = first_store.find(load->getParent());
      if (store == first_store.end() || load->comesBefore(store->second)) visit(load->getParent());
    }
    while (!waiting.empty()) {
      const BasicBlock* block = waiting.pop_back_val();
      if (block == &entry_) return true;
      for (const BasicBlock* before : llvm::predecessors(block)) {
        if (!first_store.contains(before)) visit(before);
      }
    }
    return false;
  }

  // The zero comes once, so its block is outside of all loops.
  void store_zero(llvm::AllocaInst& slot) {
    BasicBlock* block = nullptr;
    for (llvm::User* user : slot.users()) {
      BasicBlock* const at = llvm::cast<Instruction>(user)->getParent();
      if (!dominators_.isReachableFromEntry(at)) continue;
      block = block == nullptr ? at : dominators_.findNearestCommonDominator(block, at);
    }
    if (block == nullptr) return;
    while (cycles_.getCycle(block) != nullptr) {
      block = dominators_.getNode(block)->getIDom()->getBlock();
    }
    llvm::IRBuilder<> at(block, block == &entry_ ? block->getTerminator()->getIterator()
                                                 : block->getFirstInsertionPt());
    at.CreateStore(llvm::Constant::getNullValue(slot.getAllocatedType()), &slot);
  }

  BasicBlock& entry_;
  llvm::DominatorTree dominators_;
  llvm::CycleInfo cycles_;
  llvm::SmallVector<Instruction*, 16> loads_;
  llvm::SmallVector<Instruction*, 16> stores_;
};

}  // namespace

void place_register_zeros(llvm::Function& function, llvm::ArrayRef<llvm::AllocaInst*> registers) {
  RegisterZeros zeros(function);
  for (llvm::AllocaInst* slot : registers) {
    if (slot != nullptr) zeros.place(*slot);
  }
}

}  // namespace gpurun::emulated
