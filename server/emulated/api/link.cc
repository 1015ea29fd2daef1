// The linker: PTX texts and fat binaries in, one image out that the module calls take.
#include <fstream>
#include <iterator>

#include "base/log.h"
#include "driver_abi/host_object.h"
#include "driver_abi/linked_image.h"
#include "server/emulated/api.h"
#include "server/emulated/api/entry.h"
#include "server/emulated/api/jit_options.h"
#include "server/emulated/objects/context_module.h"

namespace gpurun::emulated {
namespace {

// Inputs of one link, and bytes of them all; INVALID_VALUE beyond.
constexpr std::size_t kTextsMax = 4096;
constexpr std::size_t kBytesMax = std::size_t{1} << 30;

// One thread at a time, as the manual demands; the mutex makes a wrong program harmless.
class LinkState final : public Object {
 public:
  static constexpr ObjectKind kKind = ObjectKind::kLinkState;
  LinkState(ContextPtr context, const JitOptions& options)
      : Object(kKind), context_(std::move(context)), options_(options) {}

  const JitOptions& options() const { return options_; }

  CUresult add(std::string text) {
    const std::lock_guard lock(mutex_);
    if (texts_.size() >= kTextsMax || text.size() > kBytesMax - bytes_) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    bytes_ += text.size();
    texts_.push_back(std::move(text));
    return CUDA_SUCCESS;
  }

  // The image lives as long as this. Loaded once on trial, so that errors show here.
  CUresult complete(void** image, std::size_t* image_bytes) {
    const std::lock_guard lock(mutex_);
    image_ = driver_abi::linked_image(texts_);
    const auto code = CodeImage::read(image_.data());
    if (!code.ok()) return CUDA_ERROR_INVALID_IMAGE;
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
    if (result != CUDA_SUCCESS) {
      options_.report_error(why);
      GPURUN_LOG(kWarning, "emulated device: a link failed (error %d): %s",
                 static_cast<int>(result), why.c_str());
      return result;
    }
    options_.report_success();
    *image = image_.data();
    if (image_bytes != nullptr) *image_bytes = image_.size();
    return CUDA_SUCCESS;
  }

 private:
  const ContextPtr context_;
  const JitOptions options_;
  std::mutex mutex_;
  std::vector<std::string> texts_;
  std::size_t bytes_ = 0;
  Bytes image_;
};

CUresult refuse(const LinkState& link, const char* name, CUresult result, const std::string& why) {
  link.options().report_error(why);
  GPURUN_LOG(kWarning, "emulated device: link input %s: %s", name == nullptr ? "" : name,
             why.c_str());
  return result;
}

CUresult add_image(LinkState& link, const char* name, const Result<CodeImagePtr>& image) {
  if (!image.ok()) {
    return refuse(link, name, CUDA_ERROR_INVALID_IMAGE, image.status().message());
  }
  if (!(*image)->has_ptx()) {
    return refuse(link, name, CUDA_ERROR_NO_BINARY_FOR_GPU,
                  "no PTX that this device can use, only: " + (*image)->contents());
  }
  auto texts = (*image)->texts();
  if (!texts.ok()) return refuse(link, name, CUDA_ERROR_INVALID_IMAGE, texts.status().message());
  for (std::string& text : *texts) GPURUN_TRY(link.add(std::move(text)));
  return CUDA_SUCCESS;
}

// A host object or archive: the device code that nvcc has put into it.
CUresult add_object(LinkState& link, const char* name, ByteView bytes) {
  const auto containers = driver_abi::containers_in_object(bytes);
  if (!containers.ok()) {
    return refuse(link, name, CUDA_ERROR_INVALID_IMAGE, containers.status().message());
  }
  for (const ByteView container : *containers) {
    GPURUN_TRY(add_image(link, name, CodeImage::read_bytes(container)));
  }
  return CUDA_SUCCESS;
}

CUresult add(LinkState& link, CUjitInputType type, const void* data, std::size_t bytes,
             const char* name) {
  if (data == nullptr || bytes == 0 || bytes > kBytesMax) return CUDA_ERROR_INVALID_VALUE;
  if (type == CU_JIT_INPUT_PTX) {
    std::string text(static_cast<const char*>(data), bytes);
    text.resize(text.find_last_not_of('\0') + 1);
    return link.add(std::move(text));
  }
  const ByteView view = byte_view(data, bytes);
  switch (type) {
    case CU_JIT_INPUT_CUBIN:  // What an earlier link has made, or machine code, which is refused.
    case CU_JIT_INPUT_FATBINARY:
      return add_image(link, name, CodeImage::read_bytes(view));
    case CU_JIT_INPUT_OBJECT:
    case CU_JIT_INPUT_LIBRARY:
      return add_object(link, name, view);
    default:
      break;
  }
  if (static_cast<unsigned>(type) >= CU_JIT_NUM_INPUT_TYPES) return CUDA_ERROR_INVALID_VALUE;
  return refuse(link, name, CUDA_ERROR_NO_BINARY_FOR_GPU,
                "NVVM IR cannot be linked on this device");
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
                          const char* name, unsigned int, CUjit_option*, void**) {
  GPURUN_ENTER_DRIVER();
  const auto link = handles().find<LinkState>(handle);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return add(*link, type, data, bytes, name);
}

CUresult cuLinkAddFile_v2(CUlinkState handle, CUjitInputType type, const char* path, unsigned int,
                          CUjit_option*, void**) {
  GPURUN_ENTER_DRIVER();
  const auto link = handles().find<LinkState>(handle);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::ifstream file(path, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  return add(*link, type, content.data(), content.size(), path);
}

CUresult cuLinkComplete(CUlinkState handle, void** image, size_t* bytes) {
  GPURUN_ENTER_DRIVER();
  const auto link = handles().find<LinkState>(handle);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return link->complete(image, bytes);
}

CUresult cuLinkDestroy(CUlinkState handle) {
  GPURUN_ENTER_DRIVER();
  return handles().remove<LinkState>(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

}  // namespace gpurun::emulated::api
