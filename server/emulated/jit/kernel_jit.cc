// Each kernel is a module in a library of its own, so that names of kernels never meet.
#include "server/emulated/jit/kernel_jit.h"

#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/TargetSelect.h>

#include <atomic>
#include <string>

#include "server/emulated/codegen/helpers.h"
#include "server/emulated/codegen/translate.h"
#include "server/emulated/runtime/warp_functions.h"

namespace gpurun::emulated {
namespace {

Status failure(const char* what, llvm::Error error) {
  return Status(Code::kInternal, std::string(what) + ": " + llvm::toString(std::move(error)));
}

template <class F>
void* address_of(F* function) {
  return reinterpret_cast<void*>(function);
}

void optimize(llvm::Module& module) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager calls;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(calls);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, calls, modules);
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O1).run(module, modules);
}

}  // namespace

struct KernelJit::Machine {
  std::unique_ptr<llvm::orc::LLJIT> jit;
  llvm::orc::JITDylib* helpers = nullptr;
  std::atomic<std::uint64_t> count{0};
};

KernelJit::KernelJit(std::unique_ptr<Machine> machine) : machine_(std::move(machine)) {}
KernelJit::~KernelJit() = default;

Result<std::unique_ptr<KernelJit>> KernelJit::create(const RuntimeFunctions& runtime) {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  auto machine = std::make_unique<Machine>();
  auto jit = llvm::orc::LLJITBuilder().create();
  if (!jit) return failure("starting the code generator", jit.takeError());
  machine->jit = std::move(*jit);
  auto library = machine->jit->createJITDylib("helpers");
  if (!library) return failure("starting the code generator", library.takeError());
  machine->helpers = &*library;
  llvm::orc::SymbolMap symbols;
  const auto define = [&](const std::string& name, void* address) {
    if (address == nullptr) return;
    symbols[machine->jit->mangleAndIntern(name)] = {
        llvm::orc::ExecutorAddr::fromPtr(address),
        llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
  };
  for (const Helper& helper : helpers()) define(helper.name, helper.address);
  for (const WarpFunctionName& warp : warp_functions()) {
    define(warp.name, address_of(warp.function));
  }
#define GPURUN_DEFINE(field) define("gpurun_device_" #field, address_of(runtime.field))
  GPURUN_DEFINE(barrier_sync);
  GPURUN_DEFINE(barrier_arrive);
  GPURUN_DEFINE(barrier_reduce);
  GPURUN_DEFINE(cluster_arrive);
  GPURUN_DEFINE(cluster_wait);
  GPURUN_DEFINE(warp);
  GPURUN_DEFINE(active_mask);
  GPURUN_DEFINE(yield);
  GPURUN_DEFINE(sleep);
  GPURUN_DEFINE(exit);
  GPURUN_DEFINE(trap);
  GPURUN_DEFINE(assert_fail);
  GPURUN_DEFINE(print);
  GPURUN_DEFINE(allocate);
  GPURUN_DEFINE(release);
  GPURUN_DEFINE(global_timer);
#undef GPURUN_DEFINE
  if (auto error = machine->helpers->define(llvm::orc::absoluteSymbols(std::move(symbols)))) {
    return failure("naming the helpers", std::move(error));
  }
  // What the code generator itself calls: memcpy, fma and other functions of the C library.
  auto process = llvm::orc::DynamicLibrarySearchGenerator::GetForCurrentProcess(
      machine->jit->getDataLayout().getGlobalPrefix());
  if (!process) return failure("searching the process", process.takeError());
  machine->helpers->addGenerator(std::move(*process));
  return std::unique_ptr<KernelJit>(new KernelJit(std::move(machine)));
}

Result<KernelFunction> KernelJit::compile(const KernelSource& kernel) {
  auto context = std::make_unique<llvm::LLVMContext>();
  auto module = std::make_unique<llvm::Module>("kernel", *context);
  module->setDataLayout(machine_->jit->getDataLayout());
  module->setTargetTriple(machine_->jit->getTargetTriple().str());
  if (Status status = translate(kernel, *module); !status.ok()) return status;
  optimize(*module);
  auto library = machine_->jit->createJITDylib("kernel" + std::to_string(machine_->count++));
  if (!library) return failure("a library for the kernel", library.takeError());
  library->addToLinkOrder(*machine_->helpers);
  if (auto error = machine_->jit->addIRModule(
          *library, llvm::orc::ThreadSafeModule(std::move(module), std::move(context)))) {
    return failure("adding the kernel", std::move(error));
  }
  auto root = machine_->jit->lookup(*library, kRootSymbol);
  if (!root) return failure("generating code", root.takeError());
  return root->toPtr<KernelFunction>();
}

}  // namespace gpurun::emulated
