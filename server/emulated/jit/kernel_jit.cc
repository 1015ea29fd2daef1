// Each kernel is an object file in a library of its own, so that names of kernels never meet.
#include "server/emulated/jit/kernel_jit.h"

#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/SmallVectorMemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>
#include <llvm/Transforms/Scalar/SROA.h>

#include <atomic>
#include <string>

#include "server/emulated/codegen/translate.h"
#include "server/emulated/jit/code_facts.h"
#include "server/emulated/runtime/matrix_functions.h"
#include "server/emulated/runtime/mbarrier.h"
#include "server/emulated/runtime/native_functions.h"
#include "server/emulated/runtime/surface_functions.h"
#include "server/emulated/runtime/texture_functions.h"
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

void optimize(llvm::Module& module, llvm::TargetMachine* target, bool cheap) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager calls;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(target);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(calls);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, calls, modules);
  if (!cheap) {
    builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O1).run(module, modules);
    return;
  }
  llvm::FunctionPassManager passes;
  passes.addPass(llvm::SROAPass(llvm::SROAOptions::ModifyCFG));
  passes.addPass(llvm::EarlyCSEPass());
  passes.addPass(llvm::SimplifyCFGPass());
  llvm::ModulePassManager all;
  all.addPass(llvm::createModuleToFunctionPassAdaptor(std::move(passes)));
  all.run(module, modules);
}

}  // namespace

struct KernelJit::Machine {
  std::unique_ptr<llvm::orc::LLJIT> jit;
  std::unique_ptr<llvm::orc::JITTargetMachineBuilder> target;
  llvm::orc::JITDylib* natives = nullptr;
  std::string target_text;
  std::atomic<std::uint64_t> count{0};
};

KernelJit::KernelJit(std::unique_ptr<Machine> machine) : machine_(std::move(machine)) {}
KernelJit::~KernelJit() = default;

const std::string& KernelJit::target_text() const { return machine_->target_text; }

Result<std::unique_ptr<KernelJit>> KernelJit::create(const RuntimeFunctions& runtime) {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  auto machine = std::make_unique<Machine>();
  auto target = llvm::orc::JITTargetMachineBuilder::detectHost();
  if (!target) return failure("asking for the processor", target.takeError());
  target->setRelocationModel(llvm::Reloc::PIC_);
  target->setCodeModel(llvm::CodeModel::Small);
  // What cannot be reached ends in a trap instead of running into the next function.
  target->getOptions().TrapUnreachable = true;
  target->getOptions().NoTrapAfterNoreturn = false;
  machine->target_text = std::string("LLVM ") + LLVM_VERSION_STRING + " " + target->getCPU() + " " +
                         target->getFeatures().getString();
  machine->target = std::make_unique<llvm::orc::JITTargetMachineBuilder>(*target);
  auto jit = llvm::orc::LLJITBuilder().setJITTargetMachineBuilder(std::move(*target)).create();
  if (!jit) return failure("starting the code generator", jit.takeError());
  machine->jit = std::move(*jit);
  auto library = machine->jit->createJITDylib("natives");
  if (!library) return failure("starting the code generator", library.takeError());
  machine->natives = &*library;
  llvm::orc::SymbolMap symbols;
  const auto define = [&](const std::string& name, void* address) {
    if (address == nullptr) return;
    symbols[machine->jit->mangleAndIntern(name)] = {
        llvm::orc::ExecutorAddr::fromPtr(address),
        llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
  };
  for (const NativeFunction& function : native_functions()) define(function.name, function.address);
  for (const NativeFunction& function : mbarrier_functions())
    define(function.name, function.address);
  for (const NativeFunction& function : matrix_functions()) define(function.name, function.address);
  for (const NativeFunction& function : texture_functions())
    define(function.name, function.address);
  for (const NativeFunction& function : surface_functions())
    define(function.name, function.address);
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
  GPURUN_DEFINE(object_fault);
  GPURUN_DEFINE(assert_fail);
  GPURUN_DEFINE(print);
  GPURUN_DEFINE(allocate);
  GPURUN_DEFINE(release);
  GPURUN_DEFINE(group_handle);
  GPURUN_DEFINE(group_sync);
  GPURUN_DEFINE(group_size);
  GPURUN_DEFINE(group_rank);
  GPURUN_DEFINE(device_call);
  GPURUN_DEFINE(global_timer);
  GPURUN_DEFINE(resolve_function);
#undef GPURUN_DEFINE
  if (auto error = machine->natives->define(llvm::orc::absoluteSymbols(std::move(symbols)))) {
    return failure("naming the native functions", std::move(error));
  }
  // What the code generator itself calls: memcpy, fma and other functions of the C library.
  auto process = llvm::orc::DynamicLibrarySearchGenerator::GetForCurrentProcess(
      machine->jit->getDataLayout().getGlobalPrefix());
  if (!process) return failure("searching the process", process.takeError());
  machine->natives->addGenerator(std::move(*process));
  return std::unique_ptr<KernelJit>(new KernelJit(std::move(machine)));
}

Result<GeneratedCode> KernelJit::generate(const KernelSource& kernel, bool cheap) {
  llvm::LLVMContext context;
  StackSizes stack_sizes(context);
  llvm::Module module("kernel", context);
  auto target = machine_->target->createTargetMachine();
  if (!target) return failure("starting the code generator", target.takeError());
  if (cheap) (*target)->setOptLevel(llvm::CodeGenOptLevel::None);
  module.setDataLayout((*target)->createDataLayout());
  module.setTargetTriple((*target)->getTargetTriple().str());
  GPURUN_RETURN_IF_ERROR(translate(kernel, module));
  optimize(module, target->get(), cheap);
  GeneratedCode code;
  code.needs_fibers = module_needs_fibers(module);
  const CallDepth depth(module);
  llvm::SmallVector<char, 0> object;
  llvm::raw_svector_ostream stream(object);
  llvm::legacy::PassManager emitter;
  llvm::MCContext* machine_context = nullptr;
  if ((*target)->addPassesToEmitMC(emitter, machine_context, stream)) {
    return Status(Code::kInternal, "this processor's code generator writes no object files");
  }
  emitter.run(module);
  code.stack_bytes = depth.deepest(stack_sizes.sizes());
  code.object.assign(object.begin(), object.end());
  return code;
}

Result<LoadedCode> KernelJit::load(const std::string& object, std::span<const LinkSymbol> symbols) {
  auto& session = machine_->jit->getExecutionSession();
  auto library = machine_->jit->createJITDylib("kernel" + std::to_string(machine_->count++));
  if (!library) return failure("a library for the kernel", library.takeError());
  library->addToLinkOrder(*machine_->natives);
  const auto failed = [&](const char* what, llvm::Error error) {
    Status status = failure(what, std::move(error));
    llvm::consumeError(session.removeJITDylib(*library));
    return status;
  };
  llvm::orc::SymbolMap addresses;
  for (const LinkSymbol& symbol : symbols) {
    addresses[machine_->jit->mangleAndIntern(symbol.name)] = {
        llvm::orc::ExecutorAddr(symbol.address), llvm::JITSymbolFlags::Exported};
  }
  if (auto error = library->define(llvm::orc::absoluteSymbols(std::move(addresses)))) {
    return failed("naming the kernel's variables", std::move(error));
  }
  auto buffer = llvm::MemoryBuffer::getMemBufferCopy(object, "kernel");
  if (auto error = machine_->jit->addObjectFile(*library, std::move(buffer))) {
    return failed("adding the kernel", std::move(error));
  }
  auto root = machine_->jit->lookup(*library, kRootSymbol);
  if (!root) return failed("linking the kernel", root.takeError());
  return LoadedCode{root->toPtr<void*>(), &*library};
}

void KernelJit::unload(const LoadedCode& code) {
  if (code.library == nullptr) return;
  auto& library = *static_cast<llvm::orc::JITDylib*>(code.library);
  llvm::consumeError(machine_->jit->getExecutionSession().removeJITDylib(library));
}

}  // namespace gpurun::emulated
