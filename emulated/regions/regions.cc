// Regions: writing the functions of all regions, and the table by which the engine finds them.
#include "emulated/regions/regions.h"

#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Support/raw_ostream.h>

#include "emulated/codegen/function_source.h"
#include "emulated/regions/lane_code.h"
#include "emulated/regions/region_shell.h"
#include "emulated/regions/slice_code.h"
#include "emulated/regions/thread_code.h"
#include "emulated/runtime/warp_functions.h"

namespace gpurun::emulated {
namespace {

// Bounds of what is compiled, in instructions. The first is for the thread's code. The second is
// for all regions' blocks together, and blocks that several regions share count for each. The third
// is for what slices spill when they diverge.
constexpr std::size_t kThreadInstructionsMax = 8000;
constexpr std::size_t kRegionInstructionsMax = 24000;
constexpr std::size_t kPartingStoresMax = 6000;

Status refused(const char* why) { return Status(Code::kRefused, why); }

std::size_t size_of(const RegionShell& shell) {
  std::size_t size = 0;
  for (const llvm::BasicBlock* block : shell.blocks()) size += block->size();
  return size;
}

std::size_t parting_stores(const RegionShell& shell) {
  const ThreadCode& thread = shell.thread_code();
  std::size_t count = 0;
  for (const llvm::BasicBlock* block : shell.blocks()) {
    if (!thread.diverges(block) && thread.guards_at(block).empty()) continue;
    count += thread.live_in(block).size() + 1;
  }
  return count;
}

llvm::Function* write_region(const ThreadCode& thread, unsigned index, std::size_t* size) {
  RegionShell shell(thread, index, "region." + llvm::Twine(index));
  *size += size_of(shell);
  if (*size > kRegionInstructionsMax) return nullptr;
  LaneCode lanes(shell);
  lanes.emit();
  if (parting_stores(shell) <= kPartingStoresMax) {
    SliceCode(shell, lanes).emit();
  } else {
    // Too many exits. Every slice then is a row of single lanes.
    llvm::IRBuilder<> at(shell.slice_begin);
    llvm::Value* x = shell.variable(at, shell.slice_x);
    at.CreateStore(at.getInt32(0), shell.lane_entry);
    at.CreateStore(x, shell.lane_x);
    at.CreateStore(at.CreateAdd(x, at.getInt32(thread.slice_lanes())), shell.lane_end);
    at.CreateBr(shell.lanes_head);
  }
  return shell.function();
}

llvm::Constant* table_of(llvm::Module& module, llvm::ArrayRef<llvm::Constant*> entries,
                         llvm::Type* type, const char* name) {
  if (entries.empty())
    return llvm::ConstantPointerNull::get(llvm::PointerType::get(module.getContext(), 0));
  auto* array = llvm::ArrayType::get(type, entries.size());
  return new llvm::GlobalVariable(module, array, true, llvm::GlobalValue::InternalLinkage,
                                  llvm::ConstantArray::get(array, entries), name);
}

llvm::Constant* or_null(llvm::LLVMContext& context, llvm::Constant* pointer) {
  if (pointer != nullptr) return pointer;
  return llvm::ConstantPointerNull::get(llvm::PointerType::get(context, 0));
}

// The function of an exchange for lanes with words that are side by side.
llvm::Constant* words_function(llvm::Module& module, const Cut& cut) {
  auto* function = llvm::dyn_cast_or_null<llvm::Function>(cut.function);
  if (cut.kind != CutKind::kExchange || function == nullptr) return nullptr;
  return llvm::cast<llvm::Constant>(
      module
          .getOrInsertFunction((function->getName() + kWordsSuffix).str(),
                               function->getFunctionType())
          .getCallee());
}

void write_program(llvm::Module& module, const ThreadCode& thread,
                   llvm::ArrayRef<llvm::Constant*> functions) {
  llvm::LLVMContext& context = module.getContext();
  llvm::Type* number = llvm::Type::getInt32Ty(context);
  llvm::Type* pointer = llvm::PointerType::get(context, 0);
  const auto u32 = [&](std::uint64_t value) { return llvm::ConstantInt::get(number, value); };
  auto* words_type = llvm::ArrayType::get(number, kExchangeInputs);
  auto* cut_type = llvm::StructType::get(context, {number, number, number, number, pointer, pointer,
                                                   number, number, number, words_type});
  llvm::SmallVector<llvm::Constant*, 8> cuts;
  for (const Cut& cut : thread.cuts()) {
    std::uint32_t known = 0;
    llvm::SmallVector<llvm::Constant*, 1 + kExchangeInputs> words(1 + kExchangeInputs, u32(0));
    for (unsigned i = 0; cut.kind == CutKind::kExchange && i < words.size(); ++i) {
      auto* constant = llvm::dyn_cast<llvm::ConstantInt>(cut.exchanged(i));
      if (constant == nullptr) continue;
      known |= i == 0 ? kKnownMask : kKnownWord << (i - 1);
      words[i] = constant;
    }
    llvm::Constant* inputs =
        llvm::ConstantArray::get(words_type, llvm::ArrayRef(words).drop_front());
    cuts.push_back(llvm::ConstantStruct::get(
        cut_type,
        {u32(static_cast<std::uint32_t>(cut.kind)), u32(cut.id), u32(cut.count), u32(cut.reduction),
         or_null(context, cut.function), or_null(context, words_function(module, cut)),
         u32(cut.results), u32(known), words[0], inputs}));
  }
  auto* program_type =
      llvm::StructType::get(context, {number, number, number, number, pointer, pointer});
  llvm::Constant* program = llvm::ConstantStruct::get(
      program_type, {u32(cuts.size()), u32(thread.slot_bytes()), u32(thread.local_bytes()), u32(0),
                     table_of(module, functions, pointer, "region.functions"),
                     table_of(module, cuts, cut_type, "region.cuts")});
  new llvm::GlobalVariable(module, program_type, true, llvm::GlobalValue::ExternalLinkage, program,
                           kRootSymbol);
}

}  // namespace

unsigned slice_lanes_for(std::uint32_t row_threads) {
  constexpr std::uint32_t kLongRow = 8 * kSliceLanes;
  const bool narrow = row_threads < kLongRow && row_threads % kSliceLanes >= kNarrowSliceLanes;
  return narrow ? kNarrowSliceLanes : kSliceLanes;
}

Status split_into_regions(llvm::Module& module, unsigned slice_lanes) {
  llvm::Function* root = module.getFunction(kRootSymbol);
  if (root == nullptr) return Status(Code::kInternal, "no kernel to be split");
  if (root->getInstructionCount() > kThreadInstructionsMax) return refused("it is long");
  auto thread = ThreadCode::analyse(*root, slice_lanes);
  if (!thread.ok()) return thread.status();
  llvm::SmallVector<llvm::Constant*, 8> functions;
  std::size_t size = 0;
  for (unsigned i = 0; i <= (*thread)->cuts().size(); ++i) {
    llvm::Function* function = write_region(**thread, i, &size);
    if (function == nullptr) return refused("its regions are long");
    functions.push_back(function);
  }
  root->setName("thread");
  write_program(module, **thread, functions);
  thread->reset();
  root->eraseFromParent();
  std::string problem;
  llvm::raw_string_ostream out(problem);
  if (llvm::verifyModule(module, &out)) {
    return Status(Code::kInternal, "invalid code for the kernel's regions: " + out.str());
  }
  return Status();
}

}  // namespace gpurun::emulated
