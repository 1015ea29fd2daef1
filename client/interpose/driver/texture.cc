// Textures: texture and surface objects. Their values travel inside kernel parameters, so they are
// the worker's driver's own and each creation is a fence. The worker checks each description again
// and replaces our handles by the driver's.
#include <pthread.h>

#include <new>
#include <unordered_map>

#include "client/interpose/call/forward.h"
#include "client/interpose/custom.h"

namespace gpurun::client::interpose {
namespace {

// The live values and their contexts. The worker's driver answers for unknown values.
class LiveObjects {
 public:
  void add(std::uint64_t value, Handle context) {
    pthread_mutex_lock(&mutex_);
    // A value that is missing here costs a round trip when it ends.
    try {
      contexts_[value] = context;
    } catch (const std::bad_alloc&) {
    }
    pthread_mutex_unlock(&mutex_);
  }
  // The context in which the value was made. 0: the value is unknown.
  Handle take(std::uint64_t value) {
    pthread_mutex_lock(&mutex_);
    const auto found = contexts_.find(value);
    const Handle context = found == contexts_.end() ? Handle{0} : found->second;
    if (context != 0) contexts_.erase(found);
    pthread_mutex_unlock(&mutex_);
    return context;
  }

 private:
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  std::unordered_map<std::uint64_t, Handle> contexts_;
};

// Never destroyed.
LiveObjects& live_textures() {
  static auto* const all = new LiveObjects;
  return *all;
}
LiveObjects& live_surfaces() {
  static auto* const all = new LiveObjects;
  return *all;
}

// Whether the handles in the description are valid. A wrong handle is a wrong value, like all else
// in a description (manual, cuTexObjectCreate: return values).
bool is_sound(const EntryContext& here, const CUDA_RESOURCE_DESC& resource) {
  switch (resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY:
      return here.check(handle_of(resource.res.array.hArray), HandleKind::kArray) == 0;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      return here.check(handle_of(resource.res.mipmap.hMipmappedArray),
                        HandleKind::kMipmappedArray) == 0;
    case CU_RESOURCE_TYPE_LINEAR:
    case CU_RESOURCE_TYPE_PITCH2D:
      return true;
    default:
      return false;
  }
}

// The call needs a value where other calls have a minted handle. These objects have none.
constexpr Handle kNotMinted = 1;

template <typename Object, typename... Arguments>
CUresult create(LiveObjects& live, std::uint16_t row, Object* out, const CUDA_RESOURCE_DESC* given,
                Arguments... arguments) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  if (!is_sound(here, *given)) return CUDA_ERROR_INVALID_VALUE;
  Object value = 0;
  const int result =
      call_row(here, row, here.passing_site(), {kNotMinted}, &value, given, arguments...);
  if (value == 0) return cuda(result);
  live.add(value, here.context->handle);
  *out = value;
  return cuda(result);
}

// Ordered after the work that uses the object.
CUresult destroy(LiveObjects& live, std::uint16_t row, std::uint64_t value) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  CallSite site = here.site(protocol::Order::kOrderedHost);
  const Handle context = live.take(value);
  if (context == 0 || here.check(context, HandleKind::kContext) != 0) {
    return cuda(call_row(here, row, site, {}, value));
  }
  site.context = context;
  return cuda(post_row(here, row, site, {}, value));
}

template <typename Description, typename Object>
CUresult describe(std::uint16_t row, Description* out, Object value) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  return cuda(call_row(here, row, here.passing_site(), {}, out, value));
}

}  // namespace
}  // namespace gpurun::client::interpose

namespace gpurun::client::interpose::custom {

CUresult cuTexObjectCreate(CUtexObject* out, const CUDA_RESOURCE_DESC* resource,
                           const CUDA_TEXTURE_DESC* texture, const CUDA_RESOURCE_VIEW_DESC* view) {
  if (out == nullptr || resource == nullptr || texture == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create(live_textures(), opcode::cuTexObjectCreate, out, resource, texture, view);
}

CUresult cuTexObjectDestroy(CUtexObject texture) {
  return destroy(live_textures(), opcode::cuTexObjectDestroy, texture);
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* out, CUtexObject texture) {
  return describe(opcode::cuTexObjectGetResourceDesc, out, texture);
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* out, CUtexObject texture) {
  return describe(opcode::cuTexObjectGetTextureDesc, out, texture);
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* out, CUtexObject texture) {
  return describe(opcode::cuTexObjectGetResourceViewDesc, out, texture);
}

CUresult cuSurfObjectCreate(CUsurfObject* out, const CUDA_RESOURCE_DESC* resource) {
  if (out == nullptr || resource == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create(live_surfaces(), opcode::cuSurfObjectCreate, out, resource);
}

CUresult cuSurfObjectDestroy(CUsurfObject surface) {
  return destroy(live_surfaces(), opcode::cuSurfObjectDestroy, surface);
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* out, CUsurfObject surface) {
  return describe(opcode::cuSurfObjectGetResourceDesc, out, surface);
}

}  // namespace gpurun::client::interpose::custom
