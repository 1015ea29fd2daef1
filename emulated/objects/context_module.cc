// Loading of an image into a context, lookup of its functions, and the log lines of failures.
#include "emulated/objects/context_module.h"

#include <algorithm>

#include "base/log.h"
#include "driver_abi/semantics/launch_limits.h"
#include "emulated/jit/backend.h"
#include "emulated/objects/device.h"
#include "emulated/objects/device_limits.h"
#include "emulated/objects/execution.h"
#include "emulated/objects/memory_registry.h"
#include "emulated/settings.h"

namespace gpurun::emulated {

// Variables lie in the context's device and are known to the registry like any allocation.
class ContextModule::Memory final : public GlobalMemory {
 public:
  Memory(const Context& context, std::shared_ptr<ManagedMemory> shared)
      : device_(context.device()), context_handle_(context.handle()), shared_(std::move(shared)) {}

  Result<std::uint64_t> allocate(std::uint64_t bytes, std::uint64_t alignment,
                                 bool managed) override {
    if (alignment > kAlignmentMax) {
      return Status(Code::kInvalidArgument, "alignment above that of a page");
    }
    if (managed && shared_ != nullptr) {
      return shared_->variable(shared_count_++, std::max<std::uint64_t>(1, bytes), device_);
    }
    const std::uint64_t address = device_.arena().allocate(bytes == 0 ? 1 : bytes);
    if (address == 0) {
      return Status::cuda(CUDA_ERROR_OUT_OF_MEMORY, "device memory is used up");
    }
    MemoryRange range;
    range.base = address;
    range.bytes = bytes == 0 ? 1 : bytes;
    range.kind = managed ? MemoryKind::kManaged : MemoryKind::kModule;
    range.device = device_.ordinal();
    range.context_handle = context_handle_;
    range.flags = managed ? CU_MEM_ATTACH_GLOBAL : 0;
    memory_registry().add(range);
    return address;
  }

  // Memory that the end of the context has released already is no longer known.
  void release(std::uint64_t address) override {
    if (shared_ != nullptr && shared_->holds(address)) return;
    const auto range = memory_registry().take(address, {MemoryKind::kModule, MemoryKind::kManaged});
    if (range) device_.arena().free(range->base, range->bytes);
  }

  bool has_value(std::uint64_t address) const override {
    return shared_ != nullptr && shared_->initialized() && shared_->holds(address);
  }

 private:
  static constexpr std::uint64_t kAlignmentMax = 4096;
  Device& device_;
  const std::uint64_t context_handle_;
  const std::shared_ptr<ManagedMemory> shared_;  // nullptr: managed variables are the module's own.
  std::size_t shared_count_ = 0;
};

void say_unusable(const std::string& kernel, const std::string& why) {
  if (why.empty()) return;
  GPURUN_LOG(kWarning, "emulated device: kernel %s cannot run: %s", kernel.c_str(), why.c_str());
}

std::uint32_t Function::dynamic_shared_bytes_max() const {
  const int set = settings_->max_dynamic_shared_bytes;
  if (set != FunctionSettings::kUnset) return static_cast<std::uint32_t>(set);
  return static_cast<std::uint32_t>(
      driver_abi::usual_dynamic_shared(attributes_->static_shared_bytes));
}

CUresult Function::code(ContextModule& module, std::uint64_t threads, CompiledKernel* code) {
  if (!compiled_.load(std::memory_order_acquire)) {
    const std::lock_guard lock(mutex_);
    if (!compiled_.load(std::memory_order_relaxed)) {
      const CUresult result = module.compile(name_, threads, &code_);
      if (result != CUDA_SUCCESS) return result;
      compiled_.store(true, std::memory_order_release);
    }
  }
  if (!code_.serves(threads)) {
    CompiledKernel same;  // The module shows better code through the FastForm.
    const CUresult result = module.compile(name_, threads, &same);
    if (result != CUDA_SUCCESS) return result;
  }
  *code = code_;
  return CUDA_SUCCESS;
}

ContextModule::ContextModule(ContextPtr context, std::shared_ptr<const CodeImage> image)
    : Object(kKind), context_(std::move(context)), image_(std::move(image)) {}

ContextModule::~ContextModule() {
  for (const auto& [name, function] : functions_) handles().drop(function->handle());
}

CUresult ContextModule::load(const ContextPtr& context, std::shared_ptr<const CodeImage> image,
                             const std::shared_ptr<ManagedMemory>& managed,
                             std::shared_ptr<ContextModule>* module, std::string* why) {
  std::shared_ptr<ContextModule> loaded(new ContextModule(context, std::move(image)));
  const CodeImage& code = *loaded->image_;
  if (!code.has_ptx()) {
    loaded->failure_ = "the image has no PTX that this device can use, only: " + code.contents();
  } else {
    auto texts = code.texts();
    if (!texts.ok()) {
      *why = texts.status().message();
      return texts.status().code() == Code::kCuda
                 ? static_cast<CUresult>(texts.status().cuda_error())
                 : CUDA_ERROR_INVALID_IMAGE;
    }
    Compiler* const with = compiler();
    if (with == nullptr) return CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
    loaded->memory_ = std::make_unique<Memory>(*context, managed);
    auto made = Module::load(std::move(*texts), code.contents(), *with, *loaded->memory_,
                             static_cast<std::uint32_t>(settings().capability));
    if (made.ok()) {
      loaded->module_ = std::move(*made);
      if (managed != nullptr) managed->set_initialized();
    } else if (made.status().code() == Code::kCuda) {
      *why = made.status().message();
      return static_cast<CUresult>(made.status().cuda_error());
    } else {
      loaded->failure_ = made.status().message();
      if (code.is_text()) {
        *why = loaded->failure_;
        return CUDA_ERROR_INVALID_PTX;
      }
    }
  }
  handles().add(loaded);
  context->own(*loaded);
  *module = std::move(loaded);
  return CUDA_SUCCESS;
}

void ContextModule::unload() {
  std::map<std::string, std::shared_ptr<Function>, std::less<>> functions;
  {
    const std::lock_guard lock(mutex_);
    functions.swap(functions_);
  }
  for (const auto& [name, function] : functions) handles().drop(function->handle());
  context_->disown(*this);
  handles().drop(handle());
}

CUresult ContextModule::function(const char* name, std::shared_ptr<FunctionSettings> settings,
                                 std::shared_ptr<Function>* function, std::string* why) {
  const std::lock_guard lock(mutex_);
  if (const auto found = functions_.find(std::string_view(name)); found != functions_.end()) {
    *function = found->second;
    return CUDA_SUCCESS;
  }
  if (module_ == nullptr) {
    *why = failure_;
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  const auto attributes = module_->kernel(name);
  if (!attributes.ok()) {
    if (attributes.status().code() == Code::kInvalidArgument) return CUDA_ERROR_NOT_FOUND;
    *why = attributes.status().message();
    return unusable();
  }
  if (settings == nullptr) settings = std::make_shared<FunctionSettings>();
  auto made = handles().add(
      std::make_shared<Function>(weak_from_this(), name, *attributes, std::move(settings)));
  functions_.emplace(name, made);
  *function = std::move(made);
  return CUDA_SUCCESS;
}

CUresult ContextModule::function_at(std::uint64_t address, std::shared_ptr<Function>* function) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = functions_by_address_.find(address);
    if (found != functions_by_address_.end()) {
      *function = found->second;
      return CUDA_SUCCESS;
    }
  }
  const std::string name(module_ == nullptr ? std::string_view() : module_->kernel_at(address));
  if (name.empty()) return CUDA_ERROR_INVALID_VALUE;
  Result<const KernelAttributes*> attributes(Status(Code::kInternal, "not asked"));
  const Status started = run_on_large_stack([&] { attributes = module_->kernel(name); });
  if (!started.ok()) attributes = started;
  if (!attributes.ok()) {
    say_unusable(name, attributes.status().message());
    return unusable();
  }
  auto made = std::make_shared<Function>(weak_from_this(), name, *attributes,
                                         std::make_shared<FunctionSettings>());
  const std::lock_guard lock(mutex_);
  *function = functions_by_address_.emplace(address, std::move(made)).first->second;
  return CUDA_SUCCESS;
}

std::uint32_t ContextModule::dynamic_shared_bytes_max(const Function& function) {
  const std::lock_guard lock(mutex_);
  const auto known = functions_.find(function.name());
  return known == functions_.end() ? function.dynamic_shared_bytes_max()
                                   : known->second->dynamic_shared_bytes_max();
}

CUresult ContextModule::global(const char* name, GlobalVariable* variable) const {
  if (module_ == nullptr) return CUDA_ERROR_NOT_FOUND;
  const auto found = module_->global(name);
  if (!found.ok()) return CUDA_ERROR_NOT_FOUND;
  *variable = *found;
  return CUDA_SUCCESS;
}

std::vector<std::string> ContextModule::kernel_names() const {
  return module_ == nullptr ? std::vector<std::string>() : module_->kernel_names();
}

CUresult ContextModule::compile(const std::string& name, std::uint64_t threads,
                                CompiledKernel* code) {
  auto compiled = module_->compile(name, threads);
  if (compiled.ok()) {
    *code = *compiled;
    return CUDA_SUCCESS;
  }
  say_unusable(name, compiled.status().message());
  return unusable();
}

}  // namespace gpurun::emulated
