// Link entries: cuLink*. See CUDA Driver API manual, "Module Management".
#include "client/interpose/custom.h"
#include "client/interpose/modules/files.h"
#include "client/interpose/modules/link.h"

namespace gpurun::client::interpose {
namespace {

using modules::JitRequest;
using modules::Link;

// Options of one input: only the compiler's (manual, cuLinkAddData, lists them).
int read_input_options(const CUjit_option* options, void* const* values, unsigned count,
                       JitRequest* jit) {
  if (const int result = jit->read(options, values, count); result != 0) return result;
  for (unsigned i = 0; i < count; ++i) {
    switch (options[i]) {
      case CU_JIT_WALL_TIME:
      case CU_JIT_INFO_LOG_BUFFER:
      case CU_JIT_ERROR_LOG_BUFFER:
      case CU_JIT_TARGET_FROM_CUCONTEXT:
      case CU_JIT_TARGET:
        return CUDA_ERROR_INVALID_VALUE;
      default:
        break;
    }
  }
  return 0;
}

int find(EntryContext& here, CUlinkState state, std::shared_ptr<Link>* link) {
  if (const int result = here.enter(); result != 0) return result;
  return modules::find_link(here, handle_of(state), link);
}

int add(const EntryContext& here, Link& link, CUjitInputType type, ByteView data, const char* name,
        const JitRequest& jit) {
  if (data.data() == nullptr || data.empty() || type < 0 || type >= CU_JIT_NUM_INPUT_TYPES) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return modules::add_input(here, link, type, data, name, jit);
}

}  // namespace

namespace custom {

CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option* options, void** optionValues,
                         CUlinkState* stateOut) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  if (const int lost = here.session().health(here.context->handle); lost != 0) return cuda(lost);
  if (stateOut == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitRequest jit;
  if (const int result = jit.read(options, optionValues, numOptions); result != 0) {
    return cuda(result);
  }
  std::shared_ptr<Link> link;
  const int result = modules::create_link(here, jit, &link);
  if (link != nullptr) *stateOut = as<CUlinkState>(link->handle);
  return cuda(result);
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t size,
                          const char* name, unsigned int numOptions, CUjit_option* options,
                          void** optionValues) {
  EntryContext here;
  std::shared_ptr<Link> link;
  if (const int result = find(here, state, &link); result != 0) return cuda(result);
  JitRequest jit;
  if (const int result = read_input_options(options, optionValues, numOptions, &jit); result != 0) {
    return cuda(result);
  }
  return cuda(add(here, *link, type, byte_view(data, size), name, jit));
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path,
                          unsigned int numOptions, CUjit_option* options, void** optionValues) {
  EntryContext here;
  std::shared_ptr<Link> link;
  if (const int result = find(here, state, &link); result != 0) return cuda(result);
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitRequest jit;
  if (const int result = read_input_options(options, optionValues, numOptions, &jit); result != 0) {
    return cuda(result);
  }
  Bytes bytes;
  if (const int result = modules::read_image_file(path, &bytes); result != 0) return cuda(result);
  // Such data ends with its NUL (manual, cuLinkAddData), which a text file lacks.
  if (type == CU_JIT_INPUT_PTX) bytes.push_back(std::byte{0});
  return cuda(add(here, *link, type, bytes, path, jit));
}

CUresult cuLinkComplete(CUlinkState state, void** cubinOut, size_t* sizeOut) {
  EntryContext here;
  std::shared_ptr<Link> link;
  if (const int result = find(here, state, &link); result != 0) return cuda(result);
  if (cubinOut == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ByteView image;
  const int result = modules::complete_link(here, *link, &image);
  if (image.empty()) return cuda(result);
  *cubinOut = const_cast<std::byte*>(image.data());
  if (sizeOut != nullptr) *sizeOut = image.size();
  return cuda(result);
}

CUresult cuLinkDestroy(CUlinkState state) {
  EntryContext here;
  std::shared_ptr<Link> link;
  if (const int result = find(here, state, &link); result != 0) return cuda(result);
  return cuda(modules::end_link(here, *link));
}

}  // namespace custom
}  // namespace gpurun::client::interpose
