// The machine-code compiler of the emulated device: LLVM's ORC behind a narrow door, with an object
// cache on disk. One per process; every module compiles through it. No LLVM type is visible here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "server/emulated/runtime/device_abi.h"

namespace gpurun::emulated {

// In which form kernels run: threads with stacks of their own (fibers), or regions (device_abi.h)
// where a kernel can.
enum class Tier : std::uint8_t {
  kFibers,
  kRegions,  // From the first launch on, which waits for the compilation of both.
  kAuto,     // Regions when the kernel has become hot, compiled in the background.
};

struct CompilerOptions {
  Tier tier = Tier::kFibers;
  // Directory of the object cache; empty: no cache. Created (0700) when it is not there; a
  // directory that cannot be used costs one warning and the cache, never the run.
  std::string cache_directory;
  std::uint64_t cache_bytes_max = 1ull << 30;
  // Above this many PTX instructions (callees included) the cheap code generator is used.
  std::uint32_t cheap_above_instructions = 20000;
  // Of regions that are made before any launch has been seen, for kernels without .reqntid:
  // kSliceLanes or kNarrowSliceLanes.
  unsigned slice_lanes = kSliceLanes;
  // Called once, before code is first made in the background, on the program's thread: an exit
  // handler that calls Compiler::stop_background() must be registered here and no earlier
  // (CompilerBackend::prepare_background()). May be empty.
  std::function<void()> before_background;
};

struct CompilerCounters {
  std::uint64_t kernels = 0;  // Kernels made ready, from cache or compiled.
  std::uint64_t cache_hits = 0;
  std::uint64_t milliseconds = 0;  // Spent compiling.
  std::uint64_t fast_forms = 0;    // Kernels that have got their fast form, from cache or compiled.
};

class CompilerBackend;

// Any thread. `runtime` is copied; resolve_function in it is ignored.
class Compiler {
 public:
  static Result<std::unique_ptr<Compiler>> create(const RuntimeFunctions& runtime,
                                                  const CompilerOptions& options);
  ~Compiler();

  CompilerCounters counters() const;
  // No more code is made in the background; returns when none is. At the latest before the process
  // ends.
  void stop_background();
  CompilerBackend& backend() { return *backend_; }

 private:
  explicit Compiler(std::unique_ptr<CompilerBackend> backend);
  std::unique_ptr<CompilerBackend> backend_;
};

}  // namespace gpurun::emulated
