// CompilerBackend: the compiler as modules see it: code for one unit, from the object cache or
// newly generated.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "emulated/codegen/function_source.h"
#include "emulated/jit/background_work.h"
#include "emulated/jit/compiler.h"
#include "emulated/jit/kernel_jit.h"
#include "emulated/jit/object_cache.h"

namespace gpurun::emulated {

// Runs `function` on a thread with a stack that is large enough for parser and code generator, and
// waits for it. Any thread, also on a CUDA thread's small stack.
Status run_on_large_stack(const std::function<void()>& function);

// Interface behind FunctionDescriptor::module: compiles functions that are called through pointers.
class FunctionResolver {
 public:
  virtual ~FunctionResolver() = default;
  // The code of the function with this FunctionDescriptor::index. On any stack.
  virtual Result<void*> resolve(std::uint64_t index) = 0;
  virtual const RuntimeFunctions& runtime() const = 0;
};

struct CodeRequest {
  const KernelSource* source = nullptr;
  std::span<const LinkSymbol> symbols;
  std::string_view cache_text;  // Everything that the translation depends on.
  // Whether quick code can be replaced later. Functions that are called through pointers are linked
  // once.
  bool replaceable = true;
  // Threads of the launch that waits for the code.
  std::uint64_t launch_threads = kAnyLaunch;
};

struct ReadyCode {
  LoadedCode code;
  std::uint32_t stack_bytes = 0;
  bool needs_fibers = true;
  CodeQuality quality = CodeQuality::kGood;
};

// The fast form of a kernel.
struct ReadyRegions {
  LoadedCode code;
  const RegionProgram* program = nullptr;
  std::uint32_t stack_bytes = 0;
};

// Any thread.
class CompilerBackend {
 public:
  static Result<std::unique_ptr<CompilerBackend>> create(const RuntimeFunctions& runtime,
                                                         const CompilerOptions& options);
  ~CompilerBackend();

  // Fails as KernelJit::generate() and load(). Works on a stack of its own, so the caller's may be
  // small.
  Result<ReadyCode> make(const CodeRequest& request);
  // As make(), for regions and on the caller's stack, which must be large. kRefused: the kernel has
  // no fast form. `slice_lanes`: slice_lanes_for() of the kernel's blocks (regions.h).
  //
  // With a job, the job is detached while code is generated, and may be detached after a failure.
  // kUnavailable: it was stopped.
  Result<ReadyRegions> make_regions(const CodeRequest& request, unsigned slice_lanes,
                                    BackgroundWork::Job* job);
  // Good code for a kernel with quick code. On the caller's stack, with the job as above.
  Result<ReadyCode> make_good(const CodeRequest& request, BackgroundWork::Job* job);
  // The most threads of a launch that this code should serve.
  std::uint64_t threads_max(const ReadyCode& code, const CodeRequest& request) const;
  // Whether the quick code of this kernel is to be replaced when it is hot.
  bool wants_good(const ReadyCode& code, const CodeRequest& request) const;
  // The regions in the cache, of either width. On any stack.
  std::optional<ReadyRegions> find_regions(const CodeRequest& request);
  void release(const LoadedCode& code) { jit_->unload(code); }
  Tier tier() const { return options_.tier; }
  unsigned slice_lanes() const { return options_.slice_lanes; }
  BackgroundWork& background() { return background_; }
  // Prepares background compilation. Call it before the first background work, on the program's
  // thread. False: background work is not possible.
  //
  // LLVM creates tables when it first needs them. The end of the process destroys them, the last
  // created first, and runs exit handlers in between. So the exit handler that ends background work
  // must be registered after the tables exist. This call creates them (some ms, once), and then
  // calls CompilerOptions::before_background.
  bool prepare_background();

  CompilerCounters counters() const;
  const RuntimeFunctions& runtime() const { return runtime_; }

 private:
  CompilerBackend(const RuntimeFunctions& runtime, const CompilerOptions& options,
                  std::unique_ptr<KernelJit> jit, std::unique_ptr<ObjectCache> cache);
  Result<ReadyCode> make_here(const CodeRequest& request);
  CodeQuality first_quality(const CodeRequest& request) const;
  std::optional<ReadyCode> find(const CodeRequest& request, const std::string& key,
                                CodeQuality quality);
  Result<ReadyCode> load(const GeneratedCode& code, const CodeRequest& request,
                         CodeQuality quality);
  std::optional<ReadyRegions> find_regions(const CodeRequest& request, unsigned slice_lanes);
  Result<ReadyRegions> load_regions(const GeneratedCode& code, const CodeRequest& request);
  std::string key_of(const CodeRequest& request, const std::string& form) const;

  const RuntimeFunctions runtime_;
  const CompilerOptions options_;
  std::unique_ptr<KernelJit> jit_;
  std::unique_ptr<ObjectCache> cache_;  // May be null.
  std::atomic<std::uint64_t> kernels_{0};
  std::atomic<std::uint64_t> cache_hits_{0};
  std::atomic<std::uint64_t> microseconds_{0};
  std::atomic<std::uint64_t> fast_forms_{0};
  std::atomic<std::uint64_t> quick_kernels_{0};
  std::atomic<std::uint64_t> replacements_{0};
  std::once_flag background_prepared_;
  bool background_possible_ = false;
  BackgroundWork background_;  // Destroyed first.
};

}  // namespace gpurun::emulated
