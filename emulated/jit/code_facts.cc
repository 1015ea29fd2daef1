// The needs of generated code, from the module and the code generator's diagnostics.
#include "emulated/jit/code_facts.h"

#include <llvm/IR/DiagnosticHandler.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/InstrTypes.h>

#include <algorithm>
#include <unordered_map>

#include "emulated/codegen/function_source.h"

namespace gpurun::emulated {
namespace {

// Return address, frame pointer, and what aligning a frame to 64 bytes can cost.
constexpr std::uint64_t kFrameExtra = 16 + 64;
constexpr std::uint64_t kStackMax = 1u << 30;

class Handler : public llvm::DiagnosticHandler {
 public:
  bool handleDiagnostics(const llvm::DiagnosticInfo& info) override {
    if (info.getKind() == llvm::DK_StackSize) {
      const auto& stack = static_cast<const llvm::DiagnosticInfoStackSize&>(info);
      sizes[stack.getFunction().getName()] = stack.getStackSize();
    }
    return true;  // Nothing is to be printed.
  }
  llvm::StringMap<std::uint64_t> sizes;
};

}  // namespace

StackSizes::StackSizes(llvm::LLVMContext& context) {
  auto handler = std::make_unique<Handler>();
  sizes_ = &handler->sizes;
  context.setDiagnosticHandler(std::move(handler));
}

CallDepth::CallDepth(llvm::Module& module) {
  std::unordered_map<const llvm::Function*, std::size_t> index;
  for (llvm::Function& function : module) {
    if (function.isDeclaration()) continue;
    function.addFnAttr("warn-stack-size", "0");
    if (function.getName() == kRootSymbol) root_ = nodes_.size();
    index[&function] = nodes_.size();
    nodes_.push_back({function.getName().str(), {}});
  }
  if (module.getFunction(kRootSymbol) == nullptr) {
    // Regions: the engine calls each of them.
    Node engine;
    for (std::size_t i = 0; i < nodes_.size(); ++i) engine.callees.push_back(i);
    root_ = nodes_.size();
    nodes_.push_back(std::move(engine));
  }
  for (const auto& [function, number] : index) {
    for (const llvm::BasicBlock& block : *function) {
      for (const llvm::Instruction& instruction : block) {
        const auto* call = llvm::dyn_cast<llvm::CallBase>(&instruction);
        if (call == nullptr || call->getCalledFunction() == nullptr) continue;
        const auto found = index.find(call->getCalledFunction());
        if (found == index.end()) continue;
        auto& callees = nodes_[number].callees;
        if (std::find(callees.begin(), callees.end(), found->second) == callees.end()) {
          callees.push_back(found->second);
        }
      }
    }
  }
}

std::uint32_t CallDepth::deepest(const llvm::StringMap<std::uint64_t>& frames) const {
  if (nodes_.empty()) return 0;
  enum class Mark : std::uint8_t { kNew, kOnPath, kDone };
  std::vector<Mark> marks(nodes_.size(), Mark::kNew);
  std::vector<std::uint64_t> below(nodes_.size(), 0);  // Deepest callee so far, then with itself.
  std::vector<std::pair<std::size_t, std::size_t>> path{{root_, 0}};
  marks[root_] = Mark::kOnPath;
  bool cycle = false;
  while (!path.empty()) {
    auto& [node, next] = path.back();
    if (next < nodes_[node].callees.size()) {
      const std::size_t callee = nodes_[node].callees[next];
      if (marks[callee] == Mark::kNew) {
        marks[callee] = Mark::kOnPath;
        path.emplace_back(callee, 0);
        continue;  // `next` grows when the callee is done.
      }
      cycle = cycle || marks[callee] == Mark::kOnPath;
      if (marks[callee] == Mark::kDone) below[node] = std::max(below[node], below[callee]);
      ++next;
      continue;
    }
    const auto frame = frames.find(nodes_[node].name);
    below[node] += kFrameExtra + (frame == frames.end() ? 0 : frame->second);
    marks[node] = Mark::kDone;
    path.pop_back();
  }
  std::uint64_t deepest = below[root_];
  if (cycle) {  // A chain through a cycle may visit every function once.
    deepest = 0;
    for (const Node& node : nodes_) {
      const auto frame = frames.find(node.name);
      deepest += kFrameExtra + (frame == frames.end() ? 0 : frame->second);
    }
  }
  return static_cast<std::uint32_t>(std::min(deepest, kStackMax));
}

bool module_needs_fibers(const llvm::Module& module) {
  static constexpr llvm::StringRef kPrefix = "gpurun_device_";
  static constexpr llvm::StringRef kPlain[] = {
      "trap",        "object_fault", "assert_fail", "print",      "allocate",    "release",
      "device_call", "group_handle", "group_size",  "group_rank", "global_timer"};
  for (const llvm::Function& function : module) {
    if (!function.isDeclaration() || !function.getName().starts_with(kPrefix)) continue;
    if (function.use_empty()) continue;
    const llvm::StringRef field = function.getName().drop_front(kPrefix.size());
    if (std::find(std::begin(kPlain), std::end(kPlain), field) == std::end(kPlain)) return true;
  }
  return false;
}

}  // namespace gpurun::emulated
