// Loading of a library, context by context.
#include "emulated/objects/library.h"

#include "base/log.h"
#include "emulated/objects/device.h"

namespace gpurun::emulated {

CUresult Kernel::function(const ContextPtr& context, std::shared_ptr<Function>* function) {
  const auto library = library_.lock();
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::uint64_t context_id = context->id();
  {
    const std::lock_guard lock(mutex_);
    if (last_context_ == context_id) {
      if (auto last = last_.lock()) {
        *function = std::move(last);
        return CUDA_SUCCESS;
      }
    }
  }
  std::shared_ptr<ContextModule> module;
  const CUresult loaded = library->module(context, &module);
  if (loaded != CUDA_SUCCESS) return loaded;
  std::string why;
  const CUresult result =
      module->function(name_.c_str(), settings(context->device().ordinal()), function, &why);
  if (result == CUDA_SUCCESS) {
    (*function)->set_kernel(handle());
    const std::lock_guard lock(mutex_);
    last_ = *function;
    last_context_ = context_id;
  } else {
    say_unusable(name_, why);
  }
  return result;
}

std::shared_ptr<FunctionSettings> Kernel::settings(int device) {
  const std::lock_guard lock(mutex_);
  auto& settings = settings_[device];
  if (settings == nullptr) settings = std::make_shared<FunctionSettings>();
  return settings;
}

Library::~Library() { unload(); }

CUresult Library::module(const ContextPtr& context, std::shared_ptr<ContextModule>* module) {
  const std::lock_guard lock(mutex_);
  auto& known = modules_[context->id()];
  *module = known.lock();
  if (*module != nullptr) return CUDA_SUCCESS;
  std::string why;
  const CUresult result = ContextModule::load(context, image_, managed_, module, &why);
  if (result != CUDA_SUCCESS) {
    // A failure is logged once, not for each lookup or count of the library's kernels.
    if (result == said_) return result;
    said_ = result;
    GPURUN_LOG(kWarning, "emulated device: a library cannot be loaded (error %d): %s",
               static_cast<int>(result), why.c_str());
    return result;
  }
  known = *module;
  std::erase_if(modules_, [](const auto& entry) { return entry.second.expired(); });
  return CUDA_SUCCESS;
}

CUresult Library::kernel(const ContextPtr& context, const char* name,
                         std::shared_ptr<Kernel>* kernel, std::string* why) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = kernels_.find(std::string_view(name)); found != kernels_.end()) {
      *kernel = found->second;
      return CUDA_SUCCESS;
    }
  }
  std::shared_ptr<ContextModule> loaded;
  if (const CUresult result = module(context, &loaded)) return result;
  const auto candidate = std::make_shared<Kernel>(weak_from_this(), name);
  std::shared_ptr<Function> function;
  if (const CUresult result = loaded->function(
          name, candidate->settings(context->device().ordinal()), &function, why)) {
    return result;
  }
  const std::lock_guard lock(mutex_);
  auto& known = kernels_[name];
  if (known == nullptr) known = handles().add(candidate);
  function->set_kernel(known->handle());
  *kernel = known;
  return CUDA_SUCCESS;
}

CUresult Library::kernel_names(const ContextPtr& context, std::vector<std::string>* names) {
  std::shared_ptr<ContextModule> loaded;
  if (const CUresult result = module(context, &loaded)) return result;
  *names = loaded->kernel_names();
  return CUDA_SUCCESS;
}

void Library::unload() {
  std::map<std::uint64_t, std::weak_ptr<ContextModule>> modules;
  std::map<std::string, std::shared_ptr<Kernel>, std::less<>> kernels;
  {
    const std::lock_guard lock(mutex_);
    modules.swap(modules_);
    kernels.swap(kernels_);
  }
  for (const auto& [name, kernel] : kernels) handles().drop(kernel->handle());
  for (const auto& [id, known] : modules) {
    if (const auto module = known.lock()) module->unload();
  }
}

}  // namespace gpurun::emulated
