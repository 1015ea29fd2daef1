// KernelJit: generates and loads machine code for parsed kernels. It wraps LLVM's ORC and exposes
// no LLVM type.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "emulated/codegen/function_source.h"
#include "emulated/runtime/device_abi.h"

namespace gpurun::emulated {

// An object file with kRootSymbol, and the facts that generating it has shown.
struct GeneratedCode {
  std::string object;
  std::uint32_t stack_bytes = 0;  // Deepest stack. A cycle of calls counts once.
  bool needs_fibers = true;       // As CompiledKernel::needs_fibers.
};

// Both kinds compute the same bits, except for the payload of a NaN (docs/adr/0050).
enum class CodeQuality : std::uint8_t {
  kQuick,  // Slow code, generated fast.
  kGood,
};

// What a compilation that no launch waits for observes and reports.
struct BackgroundSteps {
  // Ends the compilation at the next pass once it is true.
  const std::atomic<bool>& stop;
  // Called once the KernelSource is no longer needed.
  std::function<void()> translated;
};

struct LoadedCode {
  void* entry = nullptr;
  void* library = nullptr;  // For unload().
};

// Any thread.
class KernelJit {
 public:
  // Loading a kernel that needs a null function of `runtime` fails with kInternal.
  static Result<std::unique_ptr<KernelJit>> create(const RuntimeFunctions& runtime);
  ~KernelJit();
  KernelJit(const KernelJit&) = delete;
  KernelJit& operator=(const KernelJit&) = delete;

  // kRefused as translate(), kInternal when the code generator fails, kUnavailable when
  // `background` has ended it. Needs some MiB of stack.
  Result<GeneratedCode> generate(const KernelSource& kernel, CodeQuality quality,
                                 const BackgroundSteps* background = nullptr);

  // The fast form of the same kernel: an object in which kRootSymbol is a RegionProgram. kRefused:
  // the kernel has none. Otherwise as generate().
  Result<GeneratedCode> generate_regions(const KernelSource& kernel, unsigned slice_lanes,
                                         const BackgroundSteps* background = nullptr);

  // Compiles a small sample and discards it, so that LLVM's internal tables exist afterwards. Needs
  // some MiB of stack.
  Status warm_up();

  // Makes an object runnable. `symbols`: what it may refer to besides the run-time functions. The
  // code lives until unload() or the end of this object.
  Result<LoadedCode> load(const std::string& object, std::span<const LinkSymbol> symbols);
  void unload(const LoadedCode& code);

  // The code generator and its version, and the processor and its features. Objects are valid only
  // for the same text.
  const std::string& target_text() const;

 private:
  struct Machine;
  struct Work;
  explicit KernelJit(std::unique_ptr<Machine> machine);
  std::unique_ptr<Machine> machine_;
};

}  // namespace gpurun::emulated
