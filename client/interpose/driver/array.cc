// Arrays: CUDA arrays and mipmapped arrays, made and described by the worker's driver. The client
// keeps the description of each creation, so it can check copies itself.
#include "client/interpose/driver/arrays.h"

#include <pthread.h>

#include <algorithm>
#include <cstring>

#include "client/interpose/capture/capture.h"
#include "client/interpose/custom.h"
#include "client/interpose/driver/context_objects.h"
#include "client/interpose/driver/object_pool.h"
#include "client/interpose/memory/device_windows.h"
#include "client/interpose/memory/implicit_wait.h"
#include "client/interpose/memory/used_memory.h"
#include "driver_abi/semantics/arrays.h"

namespace gpurun::client::interpose {
namespace {

constinit ObjectPool<Array> g_arrays;
constinit ObjectPool<MipmappedArray> g_mipmapped_arrays;

// Describes level `level` of `of`. Level 0 is the array itself.
void describe(const CUDA_ARRAY3D_DESCRIPTOR& of, unsigned level, Handle mipmapped, Array* array) {
  const CUDA_ARRAY3D_DESCRIPTOR part = driver_abi::level_of(of, level);
  const auto at_least_one = [](std::uint64_t size) { return std::max<std::uint64_t>(1, size); };
  array->mipmapped = mipmapped;
  array->element_bytes = std::uint64_t{driver_abi::channel_bytes(of.Format)} * of.NumChannels;
  if (__builtin_mul_overflow(at_least_one(part.Width), array->element_bytes, &array->width)) {
    array->element_bytes = 0;
  }
  array->lines = at_least_one(part.Height);
  array->slices = at_least_one(part.Depth);
  array->flat_known.store(false, std::memory_order_relaxed);
  array->full_known.store(false, std::memory_order_relaxed);
}

// Bytes of its texels. 0: not known.
std::uint64_t bytes_of_texels(const Array& array) {
  return array.element_bytes == 0 ? 0 : array.width * array.lines * array.slices;
}

std::uint64_t bytes_of_levels(const CUDA_ARRAY3D_DESCRIPTOR& described, unsigned wanted) {
  const unsigned levels = driver_abi::mipmap_levels(described, wanted);
  std::uint64_t bytes = 0;
  for (unsigned level = 0; level < levels; ++level) {
    Array each;
    describe(described, level, 0, &each);
    bytes += bytes_of_texels(each);
  }
  return bytes;
}

CUDA_ARRAY3D_DESCRIPTOR full_of(const CUDA_ARRAY_DESCRIPTOR& flat) {
  CUDA_ARRAY3D_DESCRIPTOR full{};
  full.Width = flat.Width;
  full.Height = flat.Height;
  full.Format = flat.Format;
  full.NumChannels = flat.NumChannels;
  return full;
}

Array* array_of(const EntryContext& here, Handle array) noexcept {
  if (here.check(array, HandleKind::kArray) != 0) return nullptr;
  return static_cast<Array*>(here.handles().object_of(array));
}

// Sends the row's call with a new handle of `kind`, followed by `arguments`. Arrays come out of the
// same memory as the client's windows. So a lack of memory is final only after earlier frees are
// done and idle credits are returned. `*made` stays 0 on failure.
template <typename Kind, typename... Arguments>
int create(const EntryContext& here, std::uint16_t row, HandleKind kind, void* object, Handle* made,
           Arguments... arguments) {
  const auto attempt = [&](const CallSite& site) {
    const Handle handle = here.handles().mint(kind, here.context->handle, object);
    if (handle == 0) return int{CUDA_ERROR_OUT_OF_MEMORY};
    Kind placed{};
    const int result = call_row(here, row, site, {handle}, &placed, arguments...);
    *made = handle_of(placed);
    if (*made == 0) here.handles().retire(handle);
    return result;
  };
  return or_without_credits(here, [&] {
    const int result = attempt(here.passing_site());
    if (*made != 0 || result != CUDA_ERROR_OUT_OF_MEMORY) return result;
    return attempt(here.site());
  });
}

CUresult create_array(CUarray* out, std::uint16_t row, const CUDA_ARRAY3D_DESCRIPTOR& described,
                      const void* given) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  Array* const array = g_arrays.take();
  if (array == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  describe(described, 0, 0, array);
  Handle made = 0;
  const int result = create<CUarray>(here, row, HandleKind::kArray, array, &made, given);
  if (made == 0) {
    g_arrays.give_back(array);
  } else {
    count_memory(made, here.context->ordinal, bytes_of_texels(*array));
    *out = as<CUarray>(made);
  }
  return cuda(result);
}

// Waits for the device as the driver's function does only if the program could notice (see
// free_device_memory()). A part of another array cannot be destroyed, so there the call waits for
// the driver's refusal.
CUresult destroy(Handle handle, HandleKind kind, std::uint16_t row) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  if (const int result = here.check(handle, kind); result != 0) return cuda(result);
  if (const int result = refuse_unsafe_call(here); result != 0) return cuda(result);
  void* const object = here.handles().object_of(handle);
  const bool of_another = object == nullptr || (kind == HandleKind::kArray &&
                                                static_cast<const Array*>(object)->mipmapped != 0);
  CallSite site = here.site(protocol::Order::kOrderedHost);
  site.context = here.handles().context_of(handle);
  memory_returns.fetch_add(1, std::memory_order_relaxed);
  const bool wait = of_another || !may_free_early(here);
  if (!wait) site.flags = protocol::kFlagBarrier;
  const int result =
      wait ? call_row(here, row, site, {}, handle) : post_row(here, row, site, {}, handle);
  if (result != 0 && wait) return cuda(result);
  forget_memory(handle);
  if (kind == HandleKind::kMipmappedArray && object != nullptr) {
    for (const std::atomic<Handle>& level : static_cast<MipmappedArray*>(object)->levels) {
      const Handle part = level.load(std::memory_order_acquire);
      if (part != 0) end_array(here.handles().retire(part));
    }
    end_mipmapped_array(here.handles().retire(handle));
  } else {
    end_array(here.handles().retire(handle));
  }
  return cuda(result);
}

// `known` and `kept` are the array's own members. An array without an object is not remembered.
template <typename Descriptor>
CUresult describe_array(Descriptor* out, CUarray given, std::uint16_t row,
                        std::atomic<bool> Array::*known, Descriptor Array::*kept) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Handle handle = handle_of(given);
  if (const int result = here.check(handle, HandleKind::kArray); result != 0) return cuda(result);
  Array* const array = array_of(here, handle);
  if (array != nullptr && (array->*known).load(std::memory_order_acquire)) {
    *out = array->*kept;
    return cuda(here.session().health(here.context->handle));
  }
  const int result = call_row(here, row, here.passing_site(), {}, out, given);
  if (result == 0 && array != nullptr) {
    pthread_mutex_lock(&mutex);
    if (!(array->*known).load(std::memory_order_relaxed)) {
      array->*kept = *out;
      (array->*known).store(true, std::memory_order_release);
    }
    pthread_mutex_unlock(&mutex);
  }
  return cuda(result);
}

CUresult level_of(CUarray* out, CUmipmappedArray given, unsigned level) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Handle whole = handle_of(given);
  if (const int result = here.check(whole, HandleKind::kMipmappedArray); result != 0) {
    return cuda(result);
  }
  auto* const mipmapped = static_cast<MipmappedArray*>(here.handles().object_of(whole));
  const bool kept = mipmapped != nullptr && level < MipmappedArray::kLevelsMax;
  if (const Handle known = kept ? mipmapped->levels[level].load(std::memory_order_acquire) : 0;
      known != 0) {
    *out = as<CUarray>(known);
    return cuda(here.session().health(here.context->handle));
  }
  Array* const array = kept ? g_arrays.take() : nullptr;
  if (array != nullptr) describe(mipmapped->described, level, whole, array);
  const Handle minted =
      here.handles().mint(HandleKind::kArray, here.handles().context_of(whole), array);
  CUarray placed = nullptr;
  const int result = minted == 0 ? int{CUDA_ERROR_OUT_OF_MEMORY}
                                 : call_row(here, opcode::cuMipmappedArrayGetLevel,
                                            here.passing_site(), {minted}, &placed, given, level);
  // The worker may return an earlier handle when another thread asked for the level too.
  if (handle_of(placed) != minted || minted == 0) {
    if (minted != 0) here.handles().retire(minted);
    end_array(array);
  } else if (kept) {
    mipmapped->levels[level].store(minted, std::memory_order_release);
  }
  if (placed != nullptr) *out = placed;
  return cuda(result);
}

}  // namespace

Sound check_array_box(const EntryContext& here, Handle handle, const ArrayBox& box) noexcept {
  const Array* const array = array_of(here, handle);
  if (array == nullptr || array->element_bytes == 0) return Sound::kUnknown;
  const driver_abi::ArrayExtent all{array->element_bytes, array->width, array->lines,
                                    array->slices};
  const driver_abi::ArrayPart part{box.x, box.y, box.z, box.width, box.lines, box.slices};
  if (!driver_abi::is_part_of(all, part)) return Sound::kWrong;
  // Only the driver knows of a box that ends inside an element.
  return box.width % array->element_bytes == 0 ? Sound::kRight : Sound::kUnknown;
}

Sound check_array_pair(const EntryContext& here, Handle one, Handle other) noexcept {
  const Array* const first = array_of(here, one);
  const Array* const second = array_of(here, other);
  if (first == nullptr || first->element_bytes == 0 || second == nullptr ||
      second->element_bytes == 0) {
    return Sound::kUnknown;
  }
  return first->element_bytes == second->element_bytes ? Sound::kRight : Sound::kWrong;
}

void end_array(void* object) noexcept {
  if (object != nullptr) g_arrays.give_back(static_cast<Array*>(object));
}

void end_mipmapped_array(void* object) noexcept {
  if (object != nullptr) g_mipmapped_arrays.give_back(static_cast<MipmappedArray*>(object));
}

}  // namespace gpurun::client::interpose

namespace gpurun::client::interpose::custom {

CUresult cuArrayCreate_v2(CUarray* out, const CUDA_ARRAY_DESCRIPTOR* given) {
  if (out == nullptr || given == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create_array(out, opcode::cuArrayCreate_v2, full_of(*given), given);
}

CUresult cuArray3DCreate_v2(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* given) {
  if (out == nullptr || given == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create_array(out, opcode::cuArray3DCreate_v2, *given, given);
}

CUresult cuArrayDestroy(CUarray array) {
  return destroy(handle_of(array), HandleKind::kArray, opcode::cuArrayDestroy);
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* out, CUarray array) {
  return describe_array(out, array, opcode::cuArrayGetDescriptor_v2, &Array::flat_known,
                        &Array::flat);
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* out, CUarray array) {
  return describe_array(out, array, opcode::cuArray3DGetDescriptor_v2, &Array::full_known,
                        &Array::full);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* out, const CUDA_ARRAY3D_DESCRIPTOR* given,
                                unsigned levels) {
  if (out == nullptr || given == nullptr) return CUDA_ERROR_INVALID_VALUE;
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  MipmappedArray* const mipmapped = g_mipmapped_arrays.take();
  if (mipmapped == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  mipmapped->described = *given;
  for (std::atomic<Handle>& level : mipmapped->levels) level.store(0, std::memory_order_relaxed);
  Handle made = 0;
  const int result =
      create<CUmipmappedArray>(here, opcode::cuMipmappedArrayCreate, HandleKind::kMipmappedArray,
                               mipmapped, &made, given, levels);
  if (made == 0) {
    end_mipmapped_array(mipmapped);
  } else {
    count_memory(made, here.context->ordinal, bytes_of_levels(*given, levels));
    *out = as<CUmipmappedArray>(made);
  }
  return cuda(result);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) {
  return destroy(handle_of(array), HandleKind::kMipmappedArray, opcode::cuMipmappedArrayDestroy);
}

CUresult cuMipmappedArrayGetLevel(CUarray* out, CUmipmappedArray array, unsigned level) {
  return level_of(out, array, level);
}

}  // namespace gpurun::client::interpose::custom
