// Passes: LLVM's optimisation passes for one processor. They end early when no launch waits for
// them.
#pragma once

#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/IR/OptBisect.h>
#include <llvm/IR/PassInstrumentation.h>
#include <llvm/IR/PassManager.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Target/TargetMachine.h>

#include <atomic>

namespace gpurun::emulated {

// The passes of the code generator that run. One per context, which must not outlive it.
class CodePasses final : public llvm::OptPassGate {
 public:
  // `stop` may be null. Once it is true, no optional pass begins, and the code is of no use.
  explicit CodePasses(const std::atomic<bool>* stop) : stop_(stop) {}
  bool shouldRunPass(llvm::StringRef pass, llvm::StringRef unit) override;
  bool isEnabled() const override { return true; }
  bool stopped() const { return stop_ != nullptr && stop_->load(std::memory_order_relaxed); }

 private:
  const std::atomic<bool>* const stop_;
};

// The passes over a module, with all their analyses.
class Passes {
 public:
  // `vectorize`: whether LLVM vectorises loops. `gate` is borrowed.
  Passes(llvm::TargetMachine* target, bool vectorize, const CodePasses& gate);

  void optimize(llvm::Module& module);
  void simplify(llvm::Module& module);
  // Only cheap passes.
  void tidy(llvm::Module& module);

 private:
  llvm::PassInstrumentationCallbacks callbacks_;
  llvm::LoopAnalysisManager loops_;
  llvm::FunctionAnalysisManager functions_;
  llvm::CGSCCAnalysisManager calls_;
  llvm::ModuleAnalysisManager modules_;
  llvm::PassBuilder builder_;
};

}  // namespace gpurun::emulated
