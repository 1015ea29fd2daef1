// The machine-code compiler of the emulated device: LLVM's ORC behind a narrow door, with an object
// cache on disk. One per process; every module compiles through it. No LLVM type is visible here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "server/emulated/runtime/device_abi.h"

namespace gpurun::emulated {

struct CompilerOptions {
  // Directory of the object cache; empty: no cache. Created (0700) when it is not there; a
  // directory that cannot be used costs one warning and the cache, never the run.
  std::string cache_directory;
  std::uint64_t cache_bytes_max = 1ull << 30;
  // Above this many PTX instructions (callees included) the cheap code generator is used.
  std::uint32_t cheap_above_instructions = 20000;
};

struct CompilerCounters {
  std::uint64_t kernels = 0;  // Kernels made ready, from cache or compiled.
  std::uint64_t cache_hits = 0;
  std::uint64_t milliseconds = 0;  // Spent compiling.
};

class CompilerBackend;

// Any thread. `runtime` is copied; resolve_function in it is ignored.
class Compiler {
 public:
  static Result<std::unique_ptr<Compiler>> create(const RuntimeFunctions& runtime,
                                                  const CompilerOptions& options);
  ~Compiler();

  CompilerCounters counters() const;
  CompilerBackend& backend() { return *backend_; }

 private:
  explicit Compiler(std::unique_ptr<CompilerBackend> backend);
  std::unique_ptr<CompilerBackend> backend_;
};

}  // namespace gpurun::emulated
