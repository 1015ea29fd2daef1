// Positions: counters of loop iterations, and the positions of places in loops.
//
// A GPU lets lanes that diverge at a branch come together where the paths meet again. So converged
// lanes have reached a place by the same calls, and in the same iteration of each loop around it. A
// place is a call that asks for its position, or a call of a function that may reach one.
#include "emulated/codegen/positions.h"

#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/MapVector.h>
#include <llvm/ADT/PostOrderIterator.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/CFG.h>
#include <llvm/IR/CycleInfo.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <cstddef>

#include "emulated/runtime/device_abi.h"

namespace gpurun::emulated {
namespace {

using llvm::BasicBlock;
using llvm::CallInst;
using llvm::Cycle;
using llvm::Function;
using llvm::Value;

constexpr unsigned kHeadWords = sizeof(CodePosition) / sizeof(std::uint64_t);

bool asks_for_position(const CallInst& call) {
  const Function* callee = call.getCalledFunction();
  return callee != nullptr && callee->isDeclaration() &&
         (callee->getName() == "gpurun_device_active_mask" ||
          callee->getName() == "gpurun_device_step_together");
}

// The places of one function, and the counters and frame that they need.
class FunctionPositions {
 public:
  FunctionPositions(Function& function, llvm::ArrayRef<CallInst*> places)
      : function_(function), entry_(function.getEntryBlock().getTerminator()) {
    cycles_.compute(function);
    number_places(places);
    if (placed_.empty()) return;
    for (CallInst* place : placed_) find_loops(*place);
    create_frame();
    for (auto& [loop, counter] : counters_) count(*loop, counter);
    for (CallInst* place : placed_) write(*place);
  }

 private:
  void number_places(llvm::ArrayRef<CallInst*> places);
  void find_loops(const CallInst& place);
  void create_frame();
  void count(const Cycle& loop, Value* counter);
  void write(CallInst& place);
  Value* word(llvm::IRBuilder<>& at, unsigned index) {
    return at.CreateConstInBoundsGEP1_64(at.getInt64Ty(), frame_, index);
  }
  Value* caller_field(llvm::IRBuilder<>& at) {
    return at.CreateConstInBoundsGEP1_64(at.getInt8Ty(), function_.getArg(0),
                                         offsetof(ThreadContext, caller));
  }

  Function& function_;
  llvm::IRBuilder<> entry_;
  llvm::CycleInfo cycles_;
  llvm::SmallVector<CallInst*, 8> placed_;  // The reachable ones.
  llvm::DenseMap<const BasicBlock*, std::uint64_t> block_numbers_;
  llvm::DenseMap<const CallInst*, std::uint64_t> place_numbers_;
  llvm::DenseMap<const Cycle*, Value*> counters_;
  unsigned words_max_ = 0;
  Value* frame_ = nullptr;
  Value* caller_ = nullptr;
  llvm::Constant* identity_ = nullptr;
};

// Numbers in code order. A place that follows a block on every path without a back edge has a
// larger number.
void FunctionPositions::number_places(llvm::ArrayRef<CallInst*> places) {
  const llvm::DenseSet<const CallInst*> wanted(places.begin(), places.end());
  std::uint64_t number = 0;
  const llvm::ReversePostOrderTraversal<Function*> order(&function_);
  for (BasicBlock* block : order) {
    block_numbers_[block] = number++;
    for (llvm::Instruction& instruction : *block) {
      auto* call = llvm::dyn_cast<CallInst>(&instruction);
      if (call == nullptr || !wanted.contains(call)) continue;
      placed_.push_back(call);
      place_numbers_[call] = number++;
    }
  }
}

void FunctionPositions::find_loops(const CallInst& place) {
  unsigned words = 1;
  const Cycle* loop = cycles_.getCycle(place.getParent());
  for (; loop != nullptr; loop = loop->getParentCycle()) {
    words += 2;
    Value*& counter = counters_[loop];
    if (counter != nullptr) continue;
    counter = entry_.CreateAlloca(entry_.getInt64Ty());
    entry_.CreateStore(entry_.getInt64(0), counter);
  }
  words_max_ = std::max(words_max_, words);
}

void FunctionPositions::create_frame() {
  frame_ = entry_.CreateAlloca(llvm::ArrayType::get(entry_.getInt64Ty(), kHeadWords + words_max_));
  caller_ = entry_.CreateLoad(entry_.getPtrTy(), caller_field(entry_));
  identity_ =
      new llvm::GlobalVariable(*function_.getParent(), entry_.getInt8Ty(), true,
                               llvm::GlobalValue::InternalLinkage, entry_.getInt8(0), "position");
}

// Counts each arrival of a thread at the loop's header. A block outside of the loop that may lead
// into it resets the count. If the thread goes elsewhere, nothing reads it.
void FunctionPositions::count(const Cycle& loop, Value* counter) {
  BasicBlock* header = loop.getHeader();
  llvm::IRBuilder<> at(header, header->getFirstInsertionPt());
  Value* before = at.CreateLoad(at.getInt64Ty(), counter);
  at.CreateStore(at.CreateAdd(before, at.getInt64(1)), counter);
  llvm::DenseSet<const BasicBlock*> done;
  for (BasicBlock* into : loop.getEntries()) {
    for (BasicBlock* from : llvm::predecessors(into)) {
      if (loop.contains(from) || !done.insert(from).second) continue;
      at.SetInsertPoint(from->getTerminator());
      at.CreateStore(at.getInt64(0), counter);
    }
  }
}

void FunctionPositions::write(CallInst& place) {
  llvm::SmallVector<const Cycle*, 4> loops;
  const Cycle* loop = cycles_.getCycle(place.getParent());
  for (; loop != nullptr; loop = loop->getParentCycle()) loops.push_back(loop);
  llvm::IRBuilder<> at(&place);
  unsigned index = kHeadWords;
  while (!loops.empty()) {
    loop = loops.pop_back_val();
    at.CreateStore(at.getInt64(block_numbers_.lookup(loop->getHeader())), word(at, index++));
    Value* iteration = at.CreateLoad(at.getInt64Ty(), counters_.lookup(loop));
    at.CreateStore(iteration, word(at, index++));
  }
  at.CreateStore(at.getInt64(place_numbers_.lookup(&place)), word(at, index++));
  at.CreateStore(caller_, word(at, 0));
  at.CreateStore(identity_, word(at, 1));
  at.CreateStore(at.getInt64(index - kHeadWords), word(at, 2));
  if (asks_for_position(place)) return place.setArgOperand(1, frame_);
  at.CreateStore(frame_, caller_field(at));
  at.SetInsertPoint(place.getNextNode());
  at.CreateStore(caller_, caller_field(at));
}

}  // namespace

void write_positions(llvm::Module& module) {
  // A function that is called through a pointer is not known, so it may reach such a call.
  llvm::MapVector<Function*, llvm::SmallVector<CallInst*, 8>> places;
  llvm::SmallVector<std::pair<Function*, CallInst*>, 16> calls;
  for (Function& function : module) {
    for (llvm::Instruction& instruction : llvm::instructions(function)) {
      auto* call = llvm::dyn_cast<CallInst>(&instruction);
      if (call == nullptr) continue;
      Function* callee = call->getCalledFunction();
      if (callee == nullptr || asks_for_position(*call)) {
        places[&function].push_back(call);
      } else if (!callee->isDeclaration()) {
        calls.emplace_back(&function, call);
      }
    }
  }
  for (bool more = !places.empty(); more;) {
    more = false;
    for (auto& [function, call] : calls) {
      if (call == nullptr || !places.contains(call->getCalledFunction())) continue;
      places[function].push_back(call);
      call = nullptr;
      more = true;
    }
  }
  for (auto& [function, of_function] : places) FunctionPositions(*function, of_function);
}

}  // namespace gpurun::emulated
