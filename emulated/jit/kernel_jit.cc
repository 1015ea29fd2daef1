// Each kernel is an object file in a library of its own, so that names of kernels never collide.
#include "emulated/jit/kernel_jit.h"

#include <llvm/AsmParser/Parser.h>
#include <llvm/CodeGen/TargetInstrInfo.h>
#include <llvm/CodeGen/TargetSubtargetInfo.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/Support/SmallVectorMemoryBuffer.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/TargetSelect.h>

#include <atomic>
#include <string>

#include "emulated/codegen/translate.h"
#include "emulated/jit/code_facts.h"
#include "emulated/jit/passes.h"
#include "emulated/regions/regions.h"
#include "emulated/runtime/matrix_functions.h"
#include "emulated/runtime/mbarrier.h"
#include "emulated/runtime/native_functions.h"
#include "emulated/runtime/surface_functions.h"
#include "emulated/runtime/texture_functions.h"
#include "emulated/runtime/warp_functions.h"
#include "emulated/runtime/wide_atomics.h"

namespace gpurun::emulated {
namespace {

Status failure(const char* what, llvm::Error error) {
  return Status(Code::kInternal, std::string(what) + ": " + llvm::toString(std::move(error)));
}

template <class F>
void* address_of(F* function) {
  return reinterpret_cast<void*>(function);
}

// Inlines everything into the kernel's own function. Updates of shared memory stay functions until
// threads have been combined.
void mark_for_inlining(llvm::Module& module, bool updates) {
  for (llvm::Function& function : module) {
    if (function.isDeclaration() || !function.hasLocalLinkage()) continue;
    if (function.getName().starts_with(kUpdateFunction) && !updates) {
      function.removeFnAttr(llvm::Attribute::AlwaysInline);
      function.addFnAttr(llvm::Attribute::NoInline);
    } else if (!function.getName().starts_with("region.")) {
      function.removeFnAttr(llvm::Attribute::NoInline);
      function.addFnAttr(llvm::Attribute::AlwaysInline);
    }
  }
}

// A little of everything: a loop, calls, numbers of several kinds, vectors, work on memory.
constexpr char kSample[] = R"(
declare float @llvm.fma.f32(float, float, float)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i64 @outside(i64)
define void @sample(ptr %data, i64 %count, float %factor) {
start:
  %local = alloca [64 x i8], align 16
  call void @llvm.memcpy.p0.p0.i64(ptr %local, ptr %data, i64 %count, i1 false)
  br label %loop
loop:
  %i = phi i64 [ 0, %start ], [ %next, %more ]
  %at = getelementptr inbounds float, ptr %data, i64 %i
  %old = load float, ptr %at, align 4
  %new = call float @llvm.fma.f32(float %old, float %factor, float %old)
  store float %new, ptr %at, align 4
  %wide = load <8 x float>, ptr %local, align 4
  %scaled = fmul <8 x float> %wide, %wide
  store <8 x float> %scaled, ptr %local, align 4
  %words = load <8 x i32>, ptr %data, align 4
  %counted = add <8 x i32> %words, <i32 1, i32 2, i32 1, i32 2, i32 1, i32 2, i32 1, i32 2>
  store <8 x i32> %counted, ptr %data, align 4
  %odd = trunc i64 %i to i1
  br i1 %odd, label %call, label %more
call:
  %answer = call i64 @outside(i64 %i)
  %sum = add i64 %answer, %count
  store i64 %sum, ptr %local, align 8
  br label %more
more:
  %next = add nuw nsw i64 %i, 1
  %done = icmp eq i64 %next, %count
  br i1 %done, label %end, label %loop
end:
  ret void
}
)";

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
  // LLVM 19 swaps the operands of a masked comparison of halves when one of them is reloaded from
  // the stack. It does not reverse "less or equal" then, so the feature is off.
  target->getFeatures().AddFeature("avx512fp16", false);
  target->setRelocationModel(llvm::Reloc::PIC_);
  target->setCodeModel(llvm::CodeModel::Small);
  // Unreachable code ends in a trap and does not run into the next function.
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
  for (const NativeFunction& function : wide_atomic_functions())
    define(function.name, function.address);
  for (const NativeFunction& function : matrix_functions()) define(function.name, function.address);
  for (const NativeFunction& function : texture_functions())
    define(function.name, function.address);
  for (const NativeFunction& function : surface_functions())
    define(function.name, function.address);
  for (const WarpFunctionName& warp : warp_functions()) {
    define(warp.name, address_of(warp.function));
    define(std::string(warp.name) + kWordsSuffix, address_of(warp.words_function));
  }
#define GPURUN_DEFINE(field) define("gpurun_device_" #field, address_of(runtime.field))
  GPURUN_DEFINE(barrier_sync);
  GPURUN_DEFINE(barrier_arrive);
  GPURUN_DEFINE(barrier_reduce);
  GPURUN_DEFINE(cluster_arrive);
  GPURUN_DEFINE(cluster_wait);
  GPURUN_DEFINE(warp);
  GPURUN_DEFINE(exchange);
  GPURUN_DEFINE(active_mask);
  GPURUN_DEFINE(step_together);
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
  // Functions that the code generator itself calls: memcpy, fma and others of the C library.
  auto process = llvm::orc::DynamicLibrarySearchGenerator::GetForCurrentProcess(
      machine->jit->getDataLayout().getGlobalPrefix());
  if (!process) return failure("searching the process", process.takeError());
  machine->natives->addGenerator(std::move(*process));
  return std::unique_ptr<KernelJit>(new KernelJit(std::move(machine)));
}

// A module during code generation.
struct KernelJit::Work {
  explicit Work(const Machine& machine, const std::atomic<bool>* stop = nullptr)
      : gate(stop), stack_sizes(context), module("kernel", context) {
    context.setOptPassGate(gate);
    auto made = machine.target->createTargetMachine();
    if (!made) {
      failed = failure("starting the code generator", made.takeError());
      return;
    }
    target = std::move(*made);
    module.setDataLayout(target->createDataLayout());
    module.setTargetTriple(target->getTargetTriple().str());
  }

  // Generates machine code of the module as it is.
  Result<GeneratedCode> emit() {
    if (gate.stopped()) return stopped();
    GeneratedCode code;
    code.needs_fibers = module_needs_fibers(module);
    const CallDepth depth(module);
    llvm::SmallVector<char, 0> object;
    llvm::raw_svector_ostream stream(object);
    llvm::legacy::PassManager emitter;
    llvm::MCContext* machine_context = nullptr;
    if (target->addPassesToEmitMC(emitter, machine_context, stream)) {
      return Status(Code::kInternal, "this processor's code generator writes no object files");
    }
    emitter.run(module);
    if (gate.stopped()) return stopped();
    code.stack_bytes = depth.deepest(stack_sizes.sizes());
    code.object.assign(object.begin(), object.end());
    return code;
  }

  static Status stopped() { return Status(Code::kUnavailable, "the compilation was ended"); }

  CodePasses gate;  // Outlives the context.
  llvm::LLVMContext context;
  StackSizes stack_sizes;
  llvm::Module module;
  std::unique_ptr<llvm::TargetMachine> target;
  Status failed;
};

Result<GeneratedCode> KernelJit::generate(const KernelSource& kernel, CodeQuality quality,
                                          const BackgroundSteps* background) {
  const std::atomic<bool>* const stop = background == nullptr ? nullptr : &background->stop;
  Work work(*machine_, stop);
  GPURUN_RETURN_IF_ERROR(work.failed);
  if (quality == CodeQuality::kQuick) work.target->setOptLevel(llvm::CodeGenOptLevel::None);
  GPURUN_RETURN_IF_ERROR(translate(kernel, work.module));
  if (background != nullptr) background->translated();
  Passes passes(work.target.get(), true, work.gate);
  if (quality == CodeQuality::kQuick) {
    passes.tidy(work.module);
  } else {
    passes.optimize(work.module);
  }
  return work.emit();
}

Result<GeneratedCode> KernelJit::generate_regions(const KernelSource& kernel, unsigned slice_lanes,
                                                  const BackgroundSteps* background) {
  const std::atomic<bool>* const stop = background == nullptr ? nullptr : &background->stop;
  Work work(*machine_, stop);
  GPURUN_RETURN_IF_ERROR(work.failed);
  GPURUN_RETURN_IF_ERROR(translate(kernel, work.module));
  if (background != nullptr) background->translated();
  mark_for_inlining(work.module, false);
  Passes(work.target.get(), false, work.gate).simplify(work.module);
  if (work.gate.stopped()) return Work::stopped();
  GPURUN_RETURN_IF_ERROR(split_into_regions(work.module, slice_lanes));
  mark_for_inlining(work.module, true);
  Passes(work.target.get(), false, work.gate).optimize(work.module);
  return work.emit();
}

Status KernelJit::warm_up() {
  Work work(*machine_);
  GPURUN_RETURN_IF_ERROR(work.failed);
  llvm::SMDiagnostic wrong;
  if (llvm::parseAssemblyInto(llvm::MemoryBufferRef(kSample, "sample"), &work.module, nullptr,
                              wrong)) {
    return Status(Code::kInternal, "the sample: " + wrong.getMessage().str());
  }
  // Creates the table of instructions that take memory. Only the code for conditional moves of
  // memory needs it, and rarely.
  const llvm::Function* const sample = work.module.getFunction("sample");
  const llvm::TargetSubtargetInfo* const subtarget = work.target->getSubtargetImpl(*sample);
  (void)subtarget->getInstrInfo()->getOpcodeAfterMemoryUnfold(0, true, false);
  Passes(work.target.get(), true, work.gate).optimize(work.module);
  return work.emit().status();
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
