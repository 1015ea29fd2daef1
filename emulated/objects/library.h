// Library: code that belongs to no context (CUlibrary), with its kernels (CUkernel). Each context
// loads it when it is first needed there.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "emulated/objects/context_module.h"

namespace gpurun::emulated {

class Library;

// Any thread. Valid while its library is.
class Kernel final : public Object {
 public:
  static constexpr ObjectKind kKind = ObjectKind::kKernel;
  Kernel(std::weak_ptr<Library> library, std::string name)
      : Object(kKind), library_(std::move(library)), name_(std::move(name)) {}

  std::shared_ptr<Library> library() const { return library_.lock(); }
  const std::string& name() const { return name_; }

  // The kernel in `context`, which loads the library there. As ContextModule::function(), but logs
  // why a kernel cannot be had.
  CUresult function(const ContextPtr& context, std::shared_ptr<Function>* function);
  std::shared_ptr<FunctionSettings> settings(int device);

 private:
  const std::weak_ptr<Library> library_;
  const std::string name_;
  std::mutex mutex_;
  std::map<int, std::shared_ptr<FunctionSettings>> settings_;  // By device.
  // The last result of function(), for the context of that id. Most programs launch in one context.
  std::weak_ptr<Function> last_;
  std::uint64_t last_context_ = 0;
};

// Any thread.
class Library final : public Object, public std::enable_shared_from_this<Library> {
 public:
  static constexpr ObjectKind kKind = ObjectKind::kLibrary;
  explicit Library(std::shared_ptr<const CodeImage> image)
      : Object(kKind), image_(std::move(image)) {}
  ~Library() override;

  // The library's module in `context`, loaded at the first call.
  CUresult module(const ContextPtr& context, std::shared_ptr<ContextModule>* module);
  // `context`: where to look. The kernel is the same for all contexts. `*why`: as
  // ContextModule::function().
  CUresult kernel(const ContextPtr& context, const char* name, std::shared_ptr<Kernel>* kernel,
                  std::string* why);
  // Names of all kernels, including those that cannot be translated.
  CUresult kernel_names(const ContextPtr& context, std::vector<std::string>* names);

  // Ends the handles of kernels and modules.
  void unload();

 private:
  const std::shared_ptr<const CodeImage> image_;
  const std::shared_ptr<ManagedMemory> managed_ = std::make_shared<ManagedMemory>();
  std::mutex mutex_;  // Held while loading.
  // By context id. The contexts own the modules, so a context that has ended leaves an empty entry.
  std::map<std::uint64_t, std::weak_ptr<ContextModule>> modules_;
  std::map<std::string, std::shared_ptr<Kernel>, std::less<>> kernels_;
  CUresult said_ = CUDA_SUCCESS;  // The failure of a load that was logged.
};

}  // namespace gpurun::emulated
