// The linker: PTX texts and fat binaries in, one image out that the module calls accept.

#include "base/file_io.h"
#include "base/log.h"
#include "driver_abi/host_object.h"
#include "driver_abi/linked_image.h"
#include "emulated/api.h"
#include "emulated/api/entry.h"
#include "emulated/api/jit_options.h"
#include "emulated/objects/context_module.h"
#include "emulated/settings.h"

namespace gpurun::emulated {
namespace {

// Bounds of the inputs of one link, and of their bytes. OUT_OF_MEMORY beyond.
constexpr std::size_t kTextsMax = std::size_t{1} << 18;
constexpr std::size_t kBytesMax = std::size_t{1} << 30;

// One thread at a time, as the manual demands. The mutex makes a wrong program harmless.
class LinkState final : public Object {
 public:
  static constexpr ObjectKind kKind = ObjectKind::kLinkState;
  LinkState(ContextPtr context, const JitOptions& options)
      : Object(kKind), context_(std::move(context)), options_(options) {}

  const Context& context() const { return *context_; }

  // Runs `step`, which is one call of the link, and adds its time.
  template <typename Step>
  CUresult timed(Step step) {
    const std::lock_guard lock(mutex_);
    const auto begin = std::chrono::steady_clock::now();
    const CUresult result = step();
    options_.report_time(std::chrono::steady_clock::now() - begin);
    return result;
  }

  // The following functions run within a step.

  // Writes `why` to the program's error log.
  CUresult refuse(const char* name, CUresult result, const std::string& why) {
    const std::string of = name == nullptr ? "" : std::string(name) + ": ";
    options_.report_error(of + why);
    GPURUN_LOG(kWarning, "emulated device: a link failed (error %d): %s%s",
               static_cast<int>(result), of.c_str(), why.c_str());
    return result;
  }

  CUresult add(std::string text) {
    // Not documented. The link is no longer pending.
    if (!image_.empty()) return CUDA_ERROR_INVALID_VALUE;
    if (texts_.size() >= kTextsMax || text.size() > kBytesMax - bytes_) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    bytes_ += text.size();
    texts_.push_back(std::move(text));
    return CUDA_SUCCESS;
  }

  // The image lives as long as this object. It is loaded once on trial, so that errors show here.
  // After success later calls return the same image.
  CUresult complete(void** image, std::size_t* image_bytes) {
    if (image_.empty()) {
      Bytes made = driver_abi::linked_image(texts_);
      if (const CUresult result = load_on_trial(made)) return result;
      image_ = std::move(made);
      options_.report_success();
    }
    *image = image_.data();
    if (image_bytes != nullptr) *image_bytes = image_.size();
    return CUDA_SUCCESS;
  }

 private:
  CUresult load_on_trial(const Bytes& image) {
    const auto code = CodeImage::read(image.data());
    if (!code.ok()) return refuse(nullptr, CUDA_ERROR_INVALID_IMAGE, code.status().message());
    std::shared_ptr<ContextModule> module;
    std::string why;
    CUresult result = ContextModule::load(context_, *code, nullptr, &module, &why);
    if (result == CUDA_SUCCESS) {
      if (const std::string* failure = module->failure()) {
        why = *failure;
        result = CUDA_ERROR_INVALID_PTX;
      }
      module->unload();
    }
    return result == CUDA_SUCCESS ? result : refuse(nullptr, result, why);
  }

  const ContextPtr context_;
  std::mutex mutex_;  // Guards what follows.
  JitOptions options_;
  std::vector<std::string> texts_;
  std::size_t bytes_ = 0;
  Bytes image_;
};

CUresult find_link(CUlinkState handle, std::shared_ptr<LinkState>* link) {
  GPURUN_ENTER_DRIVER();
  *link = handles().find<LinkState>(handle);
  if (*link == nullptr || !(*link)->context().is_active()) return CUDA_ERROR_INVALID_HANDLE;
  return (*link)->context().sticky_error();
}

// PTX is compiled when it is added (cuda.h lists PTX errors among cuLinkAddData's return values).
// So an error that this device finds without the other texts is reported at once.
CUresult add_text(LinkState& link, const char* name, std::string text) {
  const Status usable = Module::check_text(text, static_cast<std::uint32_t>(settings().capability));
  if (usable.ok()) return link.add(std::move(text));
  return link.refuse(name, static_cast<CUresult>(usable.cuda_error()), usable.message());
}

CUresult add_image(LinkState& link, const char* name, const Result<CodeImagePtr>& image,
                   bool text_allowed) {
  if (!image.ok()) {
    return link.refuse(name, CUDA_ERROR_INVALID_IMAGE, image.status().message());
  }
  if (!(*image)->has_ptx()) {
    return link.refuse(name, CUDA_ERROR_NO_BINARY_FOR_GPU,
                       "no PTX that this device can use, only: " + (*image)->contents());
  }
  auto texts = (*image)->texts();
  if (!texts.ok()) {
    return link.refuse(name, CUDA_ERROR_INVALID_IMAGE, texts.status().message());
  }
  if ((*image)->is_text()) {
    return text_allowed ? add_text(link, name, std::move(texts->front()))
                        : link.refuse(name, CUDA_ERROR_INVALID_IMAGE, "text is no cubin");
  }
  for (std::string& text : *texts) GPURUN_TRY(link.add(std::move(text)));
  return CUDA_SUCCESS;
}

// A host object or archive: the device code that nvcc has put into it.
CUresult add_object(LinkState& link, const char* name, ByteView bytes) {
  const auto containers = driver_abi::containers_in_object(bytes);
  if (!containers.ok()) {
    return link.refuse(name, CUDA_ERROR_INVALID_IMAGE, containers.status().message());
  }
  for (const ByteView container : *containers) {
    GPURUN_TRY(add_image(link, name, CodeImage::read_bytes(container), false));
  }
  return CUDA_SUCCESS;
}

CUresult add_bytes(LinkState& link, CUjitInputType type, const void* data, std::size_t bytes,
                   const char* name) {
  if (type == CU_JIT_INPUT_PTX) {
    std::string text(static_cast<const char*>(data), bytes);
    text.resize(text.find_last_not_of('\0') + 1);
    return add_text(link, name, std::move(text));
  }
  const ByteView view = byte_view(data, bytes);
  switch (type) {
    // The output of an earlier link, or machine code, which is refused.
    case CU_JIT_INPUT_CUBIN:
    case CU_JIT_INPUT_FATBINARY:
      return add_image(link, name, CodeImage::read_bytes(view), type != CU_JIT_INPUT_CUBIN);
    case CU_JIT_INPUT_OBJECT:
    case CU_JIT_INPUT_LIBRARY:
      return add_object(link, name, view);
    default:
      return link.refuse(name, CUDA_ERROR_NO_BINARY_FOR_GPU,
                         "NVVM IR cannot be linked on this device");
  }
}

CUresult add(LinkState& link, CUjitInputType type, const void* data, std::size_t bytes,
             const char* name) {
  if (data == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (static_cast<unsigned>(type) >= CU_JIT_NUM_INPUT_TYPES) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > kBytesMax) return CUDA_ERROR_OUT_OF_MEMORY;
  return link.timed([&] { return add_bytes(link, type, data, bytes, name); });
}

}  // namespace
}  // namespace gpurun::emulated

namespace gpurun::emulated::api {

CUresult cuLinkCreate_v2(unsigned int count, CUjit_option* options, void** values,
                         CUlinkState* out) {
  GPURUN_ENTER(context);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitOptions jit;
  GPURUN_TRY(jit.read(count, options, values));
  *out = handles().add(std::make_shared<LinkState>(context, jit))->as<CUlinkState>();
  return CUDA_SUCCESS;
}

CUresult cuLinkAddData_v2(CUlinkState handle, CUjitInputType type, void* data, size_t bytes,
                          const char* name, unsigned int count, CUjit_option* options,
                          void** values) {
  std::shared_ptr<LinkState> link;
  GPURUN_TRY(find_link(handle, &link));
  GPURUN_TRY(JitOptions::check_input(count, options, values));
  return add(*link, type, data, bytes, name);
}

CUresult cuLinkAddFile_v2(CUlinkState handle, CUjitInputType type, const char* path,
                          unsigned int count, CUjit_option* options, void** values) {
  std::shared_ptr<LinkState> link;
  GPURUN_TRY(find_link(handle, &link));
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GPURUN_TRY(JitOptions::check_input(count, options, values));
  const Result<std::string> content =
      read_text_file(path, CodeImage::kFileBytesMax, Code::kTooLarge);
  if (!content.ok() && content.status().code() != Code::kTooLarge) return CUDA_ERROR_FILE_NOT_FOUND;
  if (!content.ok() || content->empty()) return CUDA_ERROR_INVALID_IMAGE;
  return add(*link, type, content->data(), content->size(), path);
}

CUresult cuLinkComplete(CUlinkState handle, void** image, size_t* bytes) {
  std::shared_ptr<LinkState> link;
  GPURUN_TRY(find_link(handle, &link));
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return link->timed([&] { return link->complete(image, bytes); });
}

CUresult cuLinkDestroy(CUlinkState handle) {
  std::shared_ptr<LinkState> link;
  const CUresult result = find_link(handle, &link);
  // The rest of a link is removed too when its context has ended.
  if (link != nullptr) (void)handles().remove<LinkState>(handle);
  return result;
}

}  // namespace gpurun::emulated::api
