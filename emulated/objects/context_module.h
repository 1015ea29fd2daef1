// ContextModule: an image loaded into a context (CUmodule), and its functions (CUfunction).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "driver_abi/state/legacy_launch.h"
#include "emulated/module/module.h"
#include "emulated/objects/code_image.h"
#include "emulated/objects/context.h"
#include "emulated/objects/managed_memory.h"

namespace gpurun::emulated {

class ContextModule;

// Logs that `kernel` was looked up by its name and cannot be had. Does nothing without `why`.
void say_unusable(const std::string& kernel, const std::string& why);

// The settings that a program may change for a function. The functions of a library's kernel on one
// device share them.
struct FunctionSettings {
  static constexpr int kUnset = -1;
  std::atomic<int> max_dynamic_shared_bytes{kUnset};
  std::atomic<int> shared_carveout{kUnset};
  std::atomic<int> cache_config{0};
  std::atomic<int> cluster[3] = {0, 0, 0};
  std::atomic<int> non_portable_cluster{0};
  std::atomic<int> cluster_scheduling{0};
};

// Any thread. Valid while its module is.
class Function final : public Object {
 public:
  static constexpr ObjectKind kKind = ObjectKind::kFunction;

  Function(std::weak_ptr<ContextModule> module, std::string name,
           const KernelAttributes* attributes, std::shared_ptr<FunctionSettings> settings)
      : Object(kKind),
        module_(std::move(module)),
        name_(std::move(name)),
        attributes_(attributes),
        settings_(std::move(settings)) {}

  // nullptr: unloaded. A caller that uses attributes() or code must hold the module.
  std::shared_ptr<ContextModule> module() const { return module_.lock(); }
  const std::string& name() const { return name_; }
  const KernelAttributes& attributes() const { return *attributes_; }
  FunctionSettings& settings() const { return *settings_; }
  driver_abi::LegacyLaunch& legacy_launch() { return legacy_launch_; }
  // Handle of the library's kernel that this function is in its context. 0: the function is of a
  // module.
  std::uint64_t kernel() const { return kernel_.load(std::memory_order_relaxed); }
  void set_kernel(std::uint64_t handle) { kernel_.store(handle, std::memory_order_relaxed); }

  // False: no such attribute.
  bool attribute(CUfunction_attribute attribute, int* value) const;
  // Bound of the dynamic shared memory that a launch may ask for.
  std::uint32_t dynamic_shared_bytes_max() const;
  // The machine code for a launch of so many threads (Module::compile()). The first call compiles
  // it and blocks meanwhile. `module` is module().
  CUresult code(ContextModule& module, std::uint64_t threads, CompiledKernel* code);

 private:
  const std::weak_ptr<ContextModule> module_;
  const std::string name_;
  const KernelAttributes* const attributes_;
  const std::shared_ptr<FunctionSettings> settings_;
  std::atomic<std::uint64_t> kernel_{0};
  std::mutex mutex_;  // Held while compiling.
  std::atomic<bool> compiled_{false};
  CompiledKernel code_;
  driver_abi::LegacyLaunch legacy_launch_;
};

// Any thread.
class ContextModule final : public Object, public std::enable_shared_from_this<ContextModule> {
 public:
  static constexpr ObjectKind kKind = ObjectKind::kModule;

  // Loads `image` and gives it a handle, which the context owns. INVALID_PTX for text that is not
  // PTX, OUT_OF_MEMORY. `*why` then has a sentence. `managed`: the library's managed variables,
  // which all its modules share. One load at a time uses it. nullptr: the module has managed
  // variables of its own.
  static CUresult load(const ContextPtr& context, std::shared_ptr<const CodeImage> image,
                       const std::shared_ptr<ManagedMemory>& managed,
                       std::shared_ptr<ContextModule>* module, std::string* why);
  ~ContextModule() override;

  // Ends the handles of the module and its functions. Launched kernels keep what they need.
  void unload();

  const ContextPtr& context() const { return context_; }

  // The function of that name, the same object each time. `settings`: those of a library's kernel,
  // or nullptr.
  //
  // NOT_FOUND. NO_BINARY_FOR_GPU when the image has no PTX, or PTX that cannot be translated.
  // INVALID_PTX for the same in PTX text. `*why` then has the reason, for the log line of a program
  // that looked up this kernel (say_unusable()).
  CUresult function(const char* name, std::shared_ptr<FunctionSettings> settings,
                    std::shared_ptr<Function>* function, std::string* why);
  // The kernel that code of this module knows by `address`, the same object each time, without a
  // handle. INVALID_VALUE when no kernel has that address, else as function(). On any stack.
  CUresult function_at(std::uint64_t address, std::shared_ptr<Function>* function);
  // As Function::dynamic_shared_bytes_max(), but with the program's settings for the function of
  // the same name that has a handle.
  std::uint32_t dynamic_shared_bytes_max(const Function& function);
  // NOT_FOUND.
  CUresult global(const char* name, GlobalVariable* variable) const;
  std::vector<std::string> kernel_names() const;
  // The reason why none of its kernels can be had. nullptr: they can.
  const std::string* failure() const { return module_ == nullptr ? &failure_ : nullptr; }

  CUresult compile(const std::string& name, std::uint64_t threads, CompiledKernel* code);

 private:
  class Memory;
  ContextModule(ContextPtr context, std::shared_ptr<const CodeImage> image);

  // The CUDA code for a kernel that exists and cannot be run.
  CUresult unusable() const {
    return image_->is_text() ? CUDA_ERROR_INVALID_PTX : CUDA_ERROR_NO_BINARY_FOR_GPU;
  }

  const ContextPtr context_;
  const std::shared_ptr<const CodeImage> image_;
  std::unique_ptr<Memory> memory_;
  // nullptr: no PTX, or PTX with a wrong top level.
  std::unique_ptr<Module> module_;
  std::string failure_;  // Why there is no module.
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Function>, std::less<>> functions_;
  // Kernels that kernels launch, by address.
  std::unordered_map<std::uint64_t, std::shared_ptr<Function>> functions_by_address_;
};

}  // namespace gpurun::emulated
