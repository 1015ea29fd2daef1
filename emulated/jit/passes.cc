// Passes: the pipelines of both kinds of code.
#include "emulated/jit/passes.h"

#include <llvm/Transforms/IPO/AlwaysInliner.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>
#include <llvm/Transforms/Scalar/SROA.h>

#include <optional>

namespace gpurun::emulated {
namespace {

llvm::PipelineTuningOptions tuning(bool vectorize) {
  llvm::PipelineTuningOptions options;
  options.LoopVectorization = options.LoopInterleaving = vectorize;
  options.SLPVectorization = false;
  return options;
}

}  // namespace

bool CodePasses::shouldRunPass(llvm::StringRef pass, llvm::StringRef) {
  // It moves values to mask registers (AVX-512). Its time grows with the square of the function,
  // and kernels gain nothing from it.
  return !stopped() && pass != "X86 Domain Reassignment Pass";
}

Passes::Passes(llvm::TargetMachine* target, bool vectorize, const CodePasses& gate)
    : builder_(target, tuning(vectorize), std::nullopt, &callbacks_) {
  callbacks_.registerShouldRunOptionalPassCallback(
      [&gate](llvm::StringRef, llvm::Any) { return !gate.stopped(); });
  builder_.registerModuleAnalyses(modules_);
  builder_.registerCGSCCAnalyses(calls_);
  builder_.registerFunctionAnalyses(functions_);
  builder_.registerLoopAnalyses(loops_);
  builder_.crossRegisterProxies(loops_, functions_, calls_, modules_);
}

void Passes::optimize(llvm::Module& module) {
  builder_.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O1).run(module, modules_);
}

void Passes::simplify(llvm::Module& module) {
  builder_
      .buildModuleSimplificationPipeline(llvm::OptimizationLevel::O1,
                                         llvm::ThinOrFullLTOPhase::None)
      .run(module, modules_);
}

void Passes::tidy(llvm::Module& module) {
  llvm::FunctionPassManager passes;
  passes.addPass(llvm::SROAPass(llvm::SROAOptions::ModifyCFG));
  passes.addPass(llvm::EarlyCSEPass());
  passes.addPass(llvm::SimplifyCFGPass());
  llvm::ModulePassManager all;
  all.addPass(llvm::AlwaysInlinerPass());
  all.addPass(llvm::createModuleToFunctionPassAdaptor(std::move(passes)));
  all.run(module, modules_);
}

}  // namespace gpurun::emulated
