// A loaded PTX module, as the driver API sees it: kernels with their attributes, global variables
// with their addresses, and machine code on demand. Loading only indexes the top level; a body is
// parsed when its kernel is asked for and compiled when it is first launched, so nothing is refused
// before it is used.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/emulated/runtime/device_abi.h"

namespace gpurun::emulated {

class Compiler;  // server/emulated/jit/compiler.h: one per process, shared by all modules.

// Where a module's variables live. Any thread; called under no lock of the module but its own.
class GlobalMemory {
 public:
  virtual ~GlobalMemory() = default;
  // Zeroed is not required. `managed`: the variable is .attribute(.managed).
  virtual Result<std::uint64_t> allocate(std::uint64_t bytes, std::uint64_t alignment,
                                         bool managed) = 0;
  // Whether what was allocated at `address` is a managed variable that another module of the same
  // code has already given its first value: it keeps what it holds.
  virtual bool has_value(std::uint64_t /*address*/) const { return false; }
  virtual void release(std::uint64_t address) = 0;
};

struct KernelParameter {
  std::uint32_t offset;  // In the parameter block.
  std::uint32_t bytes;
};

struct KernelAttributes {
  std::vector<KernelParameter> parameters;
  std::uint32_t param_bytes = 0;          // Size of the parameter block.
  std::uint32_t static_shared_bytes = 0;  // Dynamic shared memory starts right behind, 16-aligned.
  bool uses_dynamic_shared = false;       // References an unsized .extern .shared array.
  std::uint32_t local_bytes = 0;          // .local variables of the kernel and its callees, summed.
  std::uint32_t const_bytes = 0;          // .const variables of the module.
  std::uint32_t required_block[3] = {0, 0, 0};    // .reqntid; zeros when not said.
  std::uint32_t max_block[3] = {0, 0, 0};         // .maxntid; zeros when not said.
  std::uint32_t min_blocks_per_sm = 0;            // .minnctapersm
  std::uint32_t required_cluster[3] = {0, 0, 0};  // .reqnctapercluster
  std::uint32_t max_threads = kBlockThreadsMax;   // From required_block or max_block.
  std::uint32_t ptx_target = 0;  // sm number of .target: 75, 90, 120. CU_FUNC_ATTRIBUTE_PTX_VERSION
                                 // and BINARY_VERSION report it (CUB fails silently otherwise).
  std::uint32_t ptx_version = 0;  // ISA version times ten: 90 for 9.0.
};

// The fast form of a kernel (device_abi.h, "Regions"), which some never have and others get while
// they run. Any thread; lives as long as its module.
class FastForm {
 public:
  struct Code {
    const RegionProgram* program = nullptr;
    std::uint32_t stack_bytes = 0;  // As CompiledKernel::stack_bytes.
  };
  virtual ~FastForm() = default;
  // nullptr: there is none yet.
  const Code* code() const { return code_.load(std::memory_order_acquire); }
  // A grid of the kernel, with so many threads in a row of a block (ntid.x), ran without it for so
  // long.
  virtual void ran_without(std::chrono::nanoseconds time, std::uint32_t row_threads) = 0;

 protected:
  std::atomic<const Code*> code_{nullptr};
};

struct CompiledKernel {
  KernelFunction function = nullptr;
  std::uint32_t stack_bytes =
      0;                     // Deepest stack of compiled code, without the run-time functions;
                             // recursion is counted once: add the context's stack limit for it.
  bool recursive = false;    // May call itself or through function pointers.
  bool needs_fibers = true;  // See device_abi.h, "Threads and stacks".
  FastForm* fast = nullptr;
};

struct GlobalVariable {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  bool constant = false;
  bool managed = false;
};

// Any thread. What it returns lives as long as the module; the driver destroys a module only when
// none of its kernels runs or can be launched.
class Module {
 public:
  virtual ~Module() = default;

  // Indexes `texts` (one PTX text, or several to be linked together), allocates and initialises the
  // variables. Fails with kInvalidArgument when a text's top level is not PTX (the message has the
  // line), when two texts define one symbol, or as `memory` does. `name` is for messages.
  // `compiler` and `memory` are borrowed and outlive the module. A text for a target beyond
  // `target_max` (121: sm_121) is CUDA's INVALID_PTX, one of a later version of PTX than any that
  // is known UNSUPPORTED_PTX_VERSION.
  static Result<std::unique_ptr<Module>> load(std::vector<std::string> texts, std::string name,
                                              Compiler& compiler, GlobalMemory& memory,
                                              std::uint32_t target_max = ~std::uint32_t{0});

  // Whether load() would take a text of PTX that stands alone: else the CUDA code.
  static Status check_text(std::string_view text, std::uint32_t target_max);

  // Names of the .entry functions in order of the text.
  virtual const std::vector<std::string>& kernel_names() const = 0;
  // Names of the .global and .const variables that can be asked for.
  virtual const std::vector<std::string>& global_names() const = 0;

  // Parses the kernel and what it calls, and checks every instruction against the translator's
  // table. kInvalidArgument: there is no such kernel. kRefused: the body cannot be translated; the
  // message names kernel, instruction and line (the driver's answer is CUDA_ERROR_INVALID_PTX, or
  // 209 in library images). The pointer identifies the kernel and lives as long as the module.
  virtual Result<const KernelAttributes*> kernel(std::string_view name) = 0;

  // Compiles on first use (0.1 ms an instruction; object cache on disk), blocks meanwhile. Same
  // failures as kernel(), and kInternal when the code generator itself fails.
  virtual Result<CompiledKernel> compile(std::string_view name) = 0;

  // Name of the kernel that has this device address (what a kernel's name in code stands for);
  // empty: none of this module has.
  virtual std::string_view kernel_at(std::uint64_t address) const = 0;

  // kInvalidArgument when there is none of that name.
  virtual Result<GlobalVariable> global(std::string_view name) const = 0;
};

}  // namespace gpurun::emulated
