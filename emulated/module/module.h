// Module: a loaded PTX module as the driver API sees it: kernels with their attributes, global
// variables with their addresses, and machine code on demand. Loading indexes only the top level. A
// body is parsed when its kernel is looked up, and compiled when it is first launched. So a body is
// refused only when it is used.
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
#include "emulated/jit/compiler.h"
#include "emulated/runtime/device_abi.h"

namespace gpurun::emulated {

class Compiler;  // emulated/jit/compiler.h: one per process, shared by all modules.

// The memory of a module's variables. Any thread. Called with no lock held except the module's own.
class GlobalMemory {
 public:
  virtual ~GlobalMemory() = default;
  // The memory need not be zeroed. `managed`: the variable is .attribute(.managed).
  virtual Result<std::uint64_t> allocate(std::uint64_t bytes, std::uint64_t alignment,
                                         bool managed) = 0;
  // Whether `address` holds a managed variable that another module of the same code has already
  // initialised. Such a variable keeps its value.
  virtual bool has_value(std::uint64_t /*address*/) const { return false; }
  virtual void release(std::uint64_t address) = 0;
};

struct KernelParameter {
  std::uint32_t offset;  // In the parameter block.
  std::uint32_t bytes;
};

struct KernelAttributes {
  std::vector<KernelParameter> parameters;
  std::uint32_t param_bytes = 0;  // Size of the parameter block.
  // Dynamic shared memory starts right after it, 16-aligned.
  std::uint32_t static_shared_bytes = 0;
  bool uses_dynamic_shared = false;  // References an unsized .extern .shared array.
  // .local variables of the kernel and its callees, summed.
  std::uint32_t local_bytes = 0;
  std::uint32_t const_bytes = 0;                  // .const variables of the module.
  std::uint32_t required_block[3] = {0, 0, 0};    // .reqntid, or zeros.
  std::uint32_t max_block[3] = {0, 0, 0};         // .maxntid, or zeros.
  std::uint32_t min_blocks_per_sm = 0;            // .minnctapersm
  bool of_tiles = false;                          // Launches leave the block to the kernel.
  std::uint32_t required_cluster[3] = {0, 0, 0};  // .reqnctapercluster
  std::uint32_t max_threads = kBlockThreadsMax;   // From required_block or max_block.
  // The sm number of .target: 75, 90, 120. CU_FUNC_ATTRIBUTE_PTX_VERSION and BINARY_VERSION report
  // it. CUB fails silently without it.
  std::uint32_t ptx_target = 0;
  std::uint32_t ptx_version = 0;  // ISA version times ten: 90 for 9.0.
};

// A kernel's code in its usual form: threads with stacks of their own.
struct ThreadedCode {
  KernelFunction function = nullptr;
  // Deepest stack of compiled code, without the run-time functions. Recursion counts once: add the
  // context's stack limit for it.
  std::uint32_t stack_bytes = 0;
  bool needs_fibers = true;  // See device_abi.h, "Threads and stacks".
};

// What a kernel may get while it is in use: good code in place of quick code (ADR 50), and its fast
// form (device_abi.h, "Regions"). A launch takes what there is when it begins. Any thread. Lives as
// long as its module, as all code of the kernel does.
class FastForm {
 public:
  struct Code {
    const RegionProgram* program = nullptr;
    std::uint32_t stack_bytes = 0;  // As ThreadedCode::stack_bytes.
  };
  virtual ~FastForm() = default;
  // nullptr: not available yet.
  const Code* code() const { return code_.load(std::memory_order_acquire); }
  // nullptr: not available yet, or not needed.
  const ThreadedCode* better() const { return better_.load(std::memory_order_acquire); }
  // Reports that a grid of the kernel ran without the fast form for `time`. `row_threads`: the
  // threads in a row of its blocks (ntid.x).
  virtual void ran_without(std::chrono::nanoseconds time, std::uint32_t row_threads) = 0;

 protected:
  std::atomic<const Code*> code_{nullptr};
  std::atomic<const ThreadedCode*> better_{nullptr};
};

struct CompiledKernel : ThreadedCode {
  bool recursive = false;  // May call itself, or through function pointers.
  FastForm* fast = nullptr;
  // A launch with more threads asks Module::compile() again.
  std::uint64_t threads_max = kAnyLaunch;
  bool serves(std::uint64_t threads) const {
    if (threads <= threads_max || fast == nullptr || fast->better() != nullptr) return true;
    return threads != kAnyLaunch && fast->code() != nullptr;
  }
  // The code for a launch that begins now.
  const ThreadedCode& threaded() const {
    const ThreadedCode* better = fast == nullptr ? nullptr : fast->better();
    return better == nullptr ? *this : *better;
  }
};

struct GlobalVariable {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  bool constant = false;
  bool managed = false;
};

// Any thread. What it returns lives as long as the module. The driver destroys a module only when
// none of its kernels runs or can be launched.
class Module {
 public:
  virtual ~Module() = default;

  // Indexes `texts` (one PTX text, or several to be linked together), and allocates and initialises
  // the variables. `name` is for messages. `compiler` and `memory` are borrowed and must outlive
  // the module.
  //
  // kInvalidArgument, with the line, when a text's top level is not PTX. kInvalidArgument when two
  // texts define one symbol. Also fails as `memory` does. A text for a target beyond `target_max`
  // (121: sm_121) fails with CUDA's INVALID_PTX, a text of an unknown later PTX version with
  // UNSUPPORTED_PTX_VERSION.
  static Result<std::unique_ptr<Module>> load(std::vector<std::string> texts, std::string name,
                                              Compiler& compiler, GlobalMemory& memory,
                                              std::uint32_t target_max = ~std::uint32_t{0});

  // Whether load() would accept a PTX text that is not linked with others. Otherwise the CUDA code.
  static Status check_text(std::string_view text, std::uint32_t target_max);

  // Names of the .entry functions, in text order.
  virtual const std::vector<std::string>& kernel_names() const = 0;
  // Names of the .global and .const variables that global() finds.
  virtual const std::vector<std::string>& global_names() const = 0;

  // Parses the kernel and its callees, and checks every instruction against the translator's table.
  // kInvalidArgument: there is no such kernel. kRefused: the body cannot be translated, and the
  // message names kernel, instruction and line. The driver then returns CUDA_ERROR_INVALID_PTX, or
  // 209 for library images. The pointer identifies the kernel and lives as long as the module.
  virtual Result<const KernelAttributes*> kernel(std::string_view name) = 0;

  // Compiles on first use, or takes the object cache on disk, and blocks meanwhile. Fails as
  // kernel(), and with kInternal when the code generator itself fails.
  //
  // `threads`: of the launch that needs the code. Few threads get quick code at first. More threads
  // get good code, also after quick code, unless the kernel is too large for that (ADR 50).
  virtual Result<CompiledKernel> compile(std::string_view name,
                                         std::uint64_t threads = kAnyLaunch) = 0;

  // The name of the kernel with this device address, which a kernel's name in code stands for.
  // Empty: no kernel of this module has it.
  virtual std::string_view kernel_at(std::uint64_t address) const = 0;

  // kInvalidArgument: there is no such variable.
  virtual Result<GlobalVariable> global(std::string_view name) const = 0;
};

}  // namespace gpurun::emulated
