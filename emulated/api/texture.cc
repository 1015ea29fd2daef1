// Texture and surface objects: their creation, description and destruction.
#include "emulated/api.h"
#include "emulated/api/entry.h"
#include "emulated/objects/texture_object.h"

namespace gpurun::emulated {
namespace {

template <typename T>
std::uint64_t enter_book(const ContextPtr& context, std::uint64_t slot, std::shared_ptr<T> object) {
  const auto added = handles().add(std::move(object));
  objects_by_slot().add(slot, added->handle());
  context->own(*added);
  return slot;
}

// Kernels that were launched before may still use it.
template <typename T>
CUresult destroy(const ContextPtr& context, std::uint64_t slot) {
  const std::shared_ptr<T> object = find_by_slot<T>(slot);
  if (object == nullptr) return CUDA_ERROR_INVALID_VALUE;
  objects_by_slot().remove(slot);
  context->disown(*object);
  context->keep_while_busy(object);
  handles().drop(object->handle());
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace gpurun::emulated

namespace gpurun::emulated::api {

CUresult cuTexObjectCreate(CUtexObject* out, const CUDA_RESOURCE_DESC* resource,
                           const CUDA_TEXTURE_DESC* sampling, const CUDA_RESOURCE_VIEW_DESC* view) {
  GPURUN_ENTER(context);
  if (out == nullptr || resource == nullptr || sampling == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Texture texture;
  GPURUN_TRY(describe_texture(*resource, *sampling, view, &texture));
  const std::uint64_t slot = texture_slots().add(texture);
  if (slot == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *out =
      enter_book(context, slot, std::make_shared<TextureObject>(slot, *resource, *sampling, view));
  return CUDA_SUCCESS;
}

CUresult cuTexObjectDestroy(CUtexObject handle) {
  GPURUN_ENTER(context);
  return destroy<TextureObject>(context, handle);
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* out, CUtexObject handle) {
  GPURUN_ENTER(context);
  const auto texture = find_by_slot<TextureObject>(handle);
  if (texture == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = texture->resource();
  return CUDA_SUCCESS;
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* out, CUtexObject handle) {
  GPURUN_ENTER(context);
  const auto texture = find_by_slot<TextureObject>(handle);
  if (texture == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = texture->sampling();
  return CUDA_SUCCESS;
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* out, CUtexObject handle) {
  GPURUN_ENTER(context);
  const auto texture = find_by_slot<TextureObject>(handle);
  if (texture == nullptr || out == nullptr || texture->view() == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out = *texture->view();
  return CUDA_SUCCESS;
}

CUresult cuSurfObjectCreate(CUsurfObject* out, const CUDA_RESOURCE_DESC* resource) {
  GPURUN_ENTER(context);
  if (out == nullptr || resource == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Surface surface;
  GPURUN_TRY(describe_surface(*resource, &surface));
  const std::uint64_t slot = surface_slots().add(surface);
  if (slot == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = enter_book(context, slot, std::make_shared<SurfaceObject>(slot, *resource));
  return CUDA_SUCCESS;
}

CUresult cuSurfObjectDestroy(CUsurfObject handle) {
  GPURUN_ENTER(context);
  return destroy<SurfaceObject>(context, handle);
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* out, CUsurfObject handle) {
  GPURUN_ENTER(context);
  const auto surface = find_by_slot<SurfaceObject>(handle);
  if (surface == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = surface->resource();
  return CUDA_SUCCESS;
}

}  // namespace gpurun::emulated::api
