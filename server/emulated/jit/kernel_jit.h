// Machine code for parsed kernels: LLVM's ORC behind a narrow door. No LLVM type is visible here.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "server/emulated/codegen/function_source.h"
#include "server/emulated/runtime/device_abi.h"

namespace gpurun::emulated {

// An object file with kRootSymbol, and what was found out while it was made.
struct GeneratedCode {
  std::string object;
  std::uint32_t stack_bytes = 0;  // Deepest stack; a cycle of calls is counted once.
  bool needs_fibers = true;       // As CompiledKernel::needs_fibers.
};

struct LoadedCode {
  void* entry = nullptr;
  void* library = nullptr;  // For unload().
};

// Any thread.
class KernelJit {
 public:
  // A kernel that needs a function of `runtime` that is null fails to load with kInternal.
  static Result<std::unique_ptr<KernelJit>> create(const RuntimeFunctions& runtime);
  ~KernelJit();
  KernelJit(const KernelJit&) = delete;
  KernelJit& operator=(const KernelJit&) = delete;

  // kRefused as translate(); kInternal when the code generator fails. `cheap`: fast generation of
  // slow code. Needs some MiB of stack.
  Result<GeneratedCode> generate(const KernelSource& kernel, bool cheap);

  // The fast form of the same kernel: an object whose kRootSymbol is a RegionProgram. kRefused: it
  // has none. Needs some MiB of stack.
  Result<GeneratedCode> generate_regions(const KernelSource& kernel, unsigned slice_lanes);

  // Compiles a little of everything, and throws it away: what LLVM makes for itself on the way is
  // there afterwards. Needs some MiB of stack.
  Status warm_up();

  // Makes an object runnable; `symbols` are what it may refer to besides the run-time functions.
  // Lives until unload() or the end of this object.
  Result<LoadedCode> load(const std::string& object, std::span<const LinkSymbol> symbols);
  void unload(const LoadedCode& code);

  // Code generator, its version, processor and its features: objects are only good for the same.
  const std::string& target_text() const;

 private:
  struct Machine;
  struct Work;
  explicit KernelJit(std::unique_ptr<Machine> machine);
  std::unique_ptr<Machine> machine_;
};

}  // namespace gpurun::emulated
