// Compiler: the machine-code compiler of the emulated device, which wraps LLVM's ORC and an object
// cache on disk. There is one per process, and every module compiles through it. It exposes no LLVM
// type.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "emulated/runtime/device_abi.h"

namespace gpurun::emulated {

// The form in which kernels run: threads with stacks of their own (fibers), or regions
// (device_abi.h) where a kernel can.
enum class Tier : std::uint8_t {
  kFibers,
  // Regions from the first launch, which waits for the compilation of both forms.
  kRegions,
  // Regions once the kernel is hot. They are compiled in the background.
  kAuto,
};

// Threads of a launch of unknown size, or of one that cannot use regions.
inline constexpr std::uint64_t kAnyLaunch = ~std::uint64_t{0};

struct CompilerOptions {
  Tier tier = Tier::kFibers;
  // Directory of the object cache. Empty: no cache. It is created (0700) when it is missing. A
  // directory that cannot be used costs one warning and the cache, never the run.
  std::string cache_directory;
  std::uint64_t cache_bytes_max = 1ull << 30;
  // Kernels of more PTX instructions than this (callees included) start with quick code (ADR 50).
  std::uint32_t quick_above_instructions = 2000;
  // With Tier::kAuto smaller kernels start with quick code, too, if their first launch has no more
  // threads than this. A launch with more threads waits for good code.
  std::uint64_t quick_up_to_threads = 4096;
  // Functions that are called through pointers have good code up to this, because theirs is never
  // replaced.
  std::uint32_t good_up_to_instructions = 20000;
  // The quick code of a hot kernel is replaced, unless the kernel has more instructions than this.
  // A bound of the memory that LLVM takes, about 10 KB for each instruction.
  std::uint32_t replaced_up_to_instructions = 60000;
  // How long a compilation waits for another process that compiles the same kernel, for each
  // instruction. It is more than compiling takes on a machine that does little else.
  std::chrono::milliseconds turn_wait_per_instruction{1};
  // Width of regions that are made before any launch, for kernels without .reqntid: kSliceLanes or
  // kNarrowSliceLanes.
  unsigned slice_lanes = kSliceLanes;
  // Called once on the program's thread, before code is first generated in the background. An exit
  // handler that calls Compiler::stop_background() must be registered here and no earlier
  // (CompilerBackend::prepare_background()). May be empty.
  std::function<void()> before_background;
};

struct CompilerCounters {
  std::uint64_t kernels = 0;  // Kernels made ready, from the cache or compiled.
  std::uint64_t cache_hits = 0;
  std::uint64_t milliseconds = 0;  // Spent compiling.
  // Kernels that have their fast form, from the cache or compiled.
  std::uint64_t fast_forms = 0;
  std::uint64_t quick_kernels = 0;  // Of `kernels`, those that started with quick code.
  std::uint64_t replacements = 0;   // Good code in place of quick code.
};

class CompilerBackend;

// Any thread. `runtime` is copied. resolve_function in it is ignored.
class Compiler {
 public:
  static Result<std::unique_ptr<Compiler>> create(const RuntimeFunctions& runtime,
                                                  const CompilerOptions& options);
  ~Compiler();

  CompilerCounters counters() const;
  // Ends background compilation, and returns when it has ended. Call it before the process ends.
  void stop_background();
  CompilerBackend& backend() { return *backend_; }

 private:
  explicit Compiler(std::unique_ptr<CompilerBackend> backend);
  std::unique_ptr<CompilerBackend> backend_;
};

}  // namespace gpurun::emulated
