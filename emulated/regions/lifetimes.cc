// Lifetimes: the values that live across blocks and across cuts, and where they are kept.
#include <llvm/ADT/PostOrderIterator.h>
#include <llvm/IR/CFG.h>
#include <llvm/IR/InstIterator.h>

#include <algorithm>

#include "emulated/regions/thread_code.h"

namespace gpurun::emulated {
namespace {

// Beyond this many instructions a value is kept and not computed again.
constexpr unsigned kRecomputedMost = 16;
constexpr std::uint64_t kSlotBytesMax = 8 << 10;

using Set = llvm::DenseSet<llvm::Instruction*>;

}  // namespace

void ThreadCode::find_lifetimes() {
  llvm::DenseMap<const llvm::BasicBlock*, Set> used, defined, live;
  const auto instruction_of = [this](llvm::Value* value) -> llvm::Instruction* {
    return is_ambient(value) ? nullptr : llvm::dyn_cast<llvm::Instruction>(value);
  };
  for (llvm::BasicBlock& block : function_) {
    Set& own = defined[&block];
    Set& needs = used[&block];
    for (llvm::Instruction& instruction : block) {
      if (llvm::isa<llvm::PHINode>(instruction)) {
        own.insert(&instruction);
        shared_.insert(&instruction);
        continue;
      }
      for (llvm::Value* operand : instruction.operands()) {
        llvm::Instruction* value = instruction_of(operand);
        if (value == nullptr) continue;
        if (!own.contains(value)) needs.insert(value);
        if (value->getParent() != &block) shared_.insert(value);
      }
      own.insert(&instruction);
    }
    // Phis of the successor blocks read at the end of this block.
    for (llvm::BasicBlock* next : llvm::successors(&block)) {
      for (llvm::PHINode& phi : next->phis()) {
        llvm::Instruction* value = instruction_of(phi.getIncomingValueForBlock(&block));
        if (value != nullptr && !own.contains(value)) {
          needs.insert(value);
          shared_.insert(value);
        }
      }
    }
  }
  const auto order = llvm::post_order(&function_);
  bool changed = true;
  while (changed) {
    changed = false;
    for (llvm::BasicBlock* block : order) {
      Set& here = live[block];
      const std::size_t before = here.size();
      for (llvm::Instruction* value : used[block]) here.insert(value);
      for (llvm::BasicBlock* next : llvm::successors(block)) {
        Set behind = live[next];
        for (llvm::Instruction* value : behind) {
          if (!defined[block].contains(value)) live[block].insert(value);
        }
      }
      changed = changed || live[block].size() != before;
    }
  }
  for (llvm::Instruction& instruction : llvm::instructions(function_)) {
    for (auto& [block, values] : live) {
      if (values.contains(&instruction)) live_in_[block].push_back(&instruction);
    }
  }
}

llvm::ArrayRef<llvm::Instruction*> ThreadCode::live_in(const llvm::BasicBlock* block) const {
  const auto found = live_in_.find(block);
  if (found == live_in_.end()) return {};
  return found->second;
}

// The number of instructions that compute the value again from ambient values. More than `most`:
// not possible.
unsigned ThreadCode::recomputing_cost(const llvm::Value* value, unsigned most) const {
  if (is_ambient(value)) return 0;
  const auto* instruction = llvm::dyn_cast<llvm::Instruction>(value);
  const bool plain = instruction != nullptr &&
                     llvm::isa<llvm::BinaryOperator, llvm::CastInst, llvm::GetElementPtrInst,
                               llvm::ICmpInst, llvm::SelectInst>(instruction) &&
                     !instruction->isIntDivRem();
  if (!plain || most == 0) return most + 1;
  unsigned cost = 1;
  for (const llvm::Value* operand : instruction->operands()) {
    cost += recomputing_cost(operand, most - cost);
    if (cost > most) break;
  }
  return cost;
}

bool ThreadCode::is_recomputed(const llvm::Instruction* value) const {
  return recomputing_cost(value, kRecomputedMost) <= kRecomputedMost;
}

Status ThreadCode::place_slots() {
  std::vector<const llvm::Instruction*> kept;
  for (const Cut& cut : cuts_) {
    for (const llvm::Instruction* value : live_in(cut.resume)) {
      if (value == cut.call || is_recomputed(value) || slots_.contains(value)) continue;
      if (!fits_vector(value->getType())) {
        return Status(Code::kRefused, "a value of an unusual type lives across a wait");
      }
      slots_[value] = 0;
      kept.push_back(value);
    }
  }
  // The results of cuts live in their frame until the next region, and then like other values.
  const auto bytes = [this](const llvm::Instruction* value) {
    return memory_bytes(function_, value->getType());
  };
  std::stable_sort(kept.begin(), kept.end(),
                   [&](const auto* a, const auto* b) { return bytes(a) > bytes(b); });
  for (const llvm::Instruction* value : kept) {
    slots_[value] = slot_bytes_;
    slot_bytes_ += bytes(value);
  }
  if (slot_bytes_ > kSlotBytesMax) {
    return Status(Code::kRefused, "much lives across its waits");
  }
  return Status();
}

std::uint64_t ThreadCode::slot_offset(const llvm::Instruction* value) const {
  return slots_.lookup(value);
}

}  // namespace gpurun::emulated
