// Arrays and mipmapped arrays: their creation, description and destruction.
#include "emulated/objects/array.h"
#include "emulated/api.h"
#include "emulated/api/entry.h"
#include "emulated/objects/memory_registry.h"
#include "emulated/objects/ownership.h"

namespace gpurun::emulated {
namespace {

// Waits for all work of the context first, as every free does.
CUresult release_array_memory(const ContextPtr& context, const Object& object,
                              std::uint64_t memory) {
  const auto range = memory_registry().find(memory);
  const auto owner = range ? handles().find<Context>(range->context_handle) : nullptr;
  const ContextPtr& of = owner == nullptr ? context : owner;
  GPURUN_TRY(of->synchronize());
  of->disown(object);
  if (const auto taken = memory_registry().take(memory, {MemoryKind::kArray})) {
    release_memory(*taken);
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace gpurun::emulated

namespace gpurun::emulated::api {

CUresult cuArray3DCreate_v2(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* descriptor) {
  GPURUN_ENTER(context);
  if (out == nullptr || descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ArrayPtr array;
  GPURUN_TRY(make_array(*context, *descriptor, &array));
  *out = array->as<CUarray>();
  return CUDA_SUCCESS;
}

CUresult cuArrayCreate_v2(CUarray* out, const CUDA_ARRAY_DESCRIPTOR* descriptor) {
  GPURUN_ENTER(context);
  if (out == nullptr || descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_ARRAY3D_DESCRIPTOR whole{descriptor->Width,  descriptor->Height,      0,
                                      descriptor->Format, descriptor->NumChannels, 0};
  return api::cuArray3DCreate_v2(out, &whole);
}

CUresult cuArrayDestroy(CUarray handle) {
  GPURUN_ENTER(context);
  const auto array = handles().find<Array>(handle);
  // A level ends only with its mipmapped array.
  if (array == nullptr || array->is_level()) return CUDA_ERROR_INVALID_HANDLE;
  GPURUN_TRY(check_modes(driver_abi::CaptureFamily::kFree));
  GPURUN_TRY(release_array_memory(context, *array, array->memory()));
  handles().drop(array->handle());
  return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* out, CUarray handle) {
  GPURUN_ENTER(context);
  const auto array = handles().find<Array>(handle);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = array->descriptor();
  return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* out, CUarray handle) {
  GPURUN_ENTER(context);
  const auto array = handles().find<Array>(handle);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_ARRAY3D_DESCRIPTOR& whole = array->descriptor();
  *out = {whole.Width, whole.Height, whole.Format, whole.NumChannels};
  return CUDA_SUCCESS;
}

// Only for arrays with deferred mapping, which this device does not have (Driver API).
CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS*, CUarray handle, CUdevice) {
  GPURUN_ENTER(context);
  return handles().find<Array>(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE
                                                  : CUDA_ERROR_INVALID_VALUE;
}

// Only for arrays with several planes, which this device does not have (Driver API).
CUresult cuArrayGetPlane(CUarray*, CUarray handle, unsigned int) {
  GPURUN_ENTER(context);
  return handles().find<Array>(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE
                                                  : CUDA_ERROR_INVALID_VALUE;
}

// Only for sparse arrays, which this device does not have (Driver API).
CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*, CUarray handle) {
  GPURUN_ENTER(context);
  return handles().find<Array>(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE
                                                  : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* out, const CUDA_ARRAY3D_DESCRIPTOR* descriptor,
                                unsigned int levels) {
  GPURUN_ENTER(context);
  if (out == nullptr || descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<MipmappedArray> array;
  GPURUN_TRY(make_mipmapped_array(*context, *descriptor, levels, &array));
  *out = array->as<CUmipmappedArray>();
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetLevel(CUarray* out, CUmipmappedArray handle, unsigned int level) {
  GPURUN_ENTER(context);
  const auto array = handles().find<MipmappedArray>(handle);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr || level >= array->levels().size()) return CUDA_ERROR_INVALID_VALUE;
  *out = array->levels()[level]->as<CUarray>();
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray handle) {
  GPURUN_ENTER(context);
  const auto array = handles().find<MipmappedArray>(handle);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  GPURUN_TRY(check_modes(driver_abi::CaptureFamily::kFree));
  GPURUN_TRY(release_array_memory(context, *array, array->memory()));
  handles().drop(array->handle());
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS*,
                                               CUmipmappedArray handle, CUdevice) {
  GPURUN_ENTER(context);
  return handles().find<MipmappedArray>(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE
                                                           : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*,
                                             CUmipmappedArray handle) {
  GPURUN_ENTER(context);
  return handles().find<MipmappedArray>(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE
                                                           : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace gpurun::emulated::api
