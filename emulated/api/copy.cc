// Copies: one-dimensional and box copies between host and device memory, synchronous or not.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <vector>

#include "driver_abi/semantics/copy_batch.h"
#include "emulated/api/copies.h"
#include "emulated/api/entry.h"
#include "emulated/objects/array.h"
#include "emulated/objects/copy.h"
#include "emulated/objects/memory_registry.h"

namespace gpurun::emulated {
namespace {

// Up to this size the source of an asynchronous copy from pageable memory is read when it is
// issued. Above it the call waits (manual, "API synchronization behavior").
constexpr std::uint64_t kStagedBytesMax = 64 << 10;

bool known(std::uint64_t address) { return memory_registry().find(address).has_value(); }

// Whether the process has memory there, because a wrong pointer must be an error and not a crash.
// The kernel looks only at its list of mappings for this.
bool is_mapped(std::uint64_t address, std::uint64_t bytes) {
  static const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t begin = address / page * page;
  if (address + bytes < address) return false;
  return bytes == 0 ||
         msync(reinterpret_cast<void*>(begin), address + bytes - begin, MS_ASYNC) == 0;
}

CUresult check_side(CopyPlace side, const BoxSide& where, const CopyBox& box) {
  std::uint64_t bytes = 0;
  if (where.address == 0 || !box_span(where, box, &bytes)) return CUDA_ERROR_INVALID_VALUE;
  // Freed device memory is still mapped, and must not be touched.
  if (!memory_registry().permits(where.address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (side == CopyPlace::kHost || (side == CopyPlace::kUnified && !known(where.address))) {
    return is_mapped(where.address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  return memory_registry().covers(where.address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

bool is_seen_by_host(std::uint64_t address) {
  const auto range = memory_registry().find(address);
  return !range.has_value() || range->is_seen_by_host();
}

CUresult issue_copy(CUstream handle, const CopyCall& call) {
  GPURUN_ENTER(context);
  const StreamPtr stream = find_stream(context, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const CopyBox& box = call.box;
  if (box.width_bytes == 0 || box.height == 0 || box.depth == 0) return CUDA_SUCCESS;
  GPURUN_TRY(check_side(call.source, box.source, box));
  GPURUN_TRY(check_side(call.destination, box.destination, box));
  if (call.wait) return submit_and_wait(context, stream, std::make_shared<CopyOperation>(box));
  GPURUN_TRY(check_stream_use(driver_abi::CaptureFamily::kWork, *stream));
  if (stream->capture() != nullptr) {
    return submit(context, stream, std::make_shared<CopyOperation>(box, call.described));
  }
  // A pageable destination must be written when the call returns, and a pageable source must be
  // read.
  if (!known(box.destination.address)) {
    return submit_and_wait(context, stream, std::make_shared<CopyOperation>(box));
  }
  const auto from = memory_registry().find(box.source.address);
  const bool read_now = call.read_now && (!from.has_value() || from->on_host());
  if (!from.has_value() || read_now) {
    const bool line = box.height == 1 && box.depth == 1;
    const bool small = line && (read_now || box.width_bytes <= kStagedBytesMax);
    if (!small) return submit_and_wait(context, stream, std::make_shared<CopyOperation>(box));
    const auto* source = reinterpret_cast<const std::byte*>(box.source.address);
    std::vector<std::byte> staged(source, source + box.width_bytes);
    return submit(context, stream, std::make_shared<CopyOperation>(box, std::move(staged)));
  }
  return submit(context, stream, std::make_shared<CopyOperation>(box));
}

namespace {

CUresult copy_line(CUstream stream, std::uint64_t destination, CopyPlace destination_side,
                   std::uint64_t source, CopyPlace source_side, std::uint64_t bytes, bool wait,
                   bool read_now = false) {
  CopyCall call;
  call.read_now = read_now;
  call.box.source.address = source;
  call.box.destination.address = destination;
  call.box.width_bytes = bytes;
  call.source = source_side;
  call.destination = destination_side;
  call.wait = wait;
  return issue_copy(stream, call);
}

std::uint64_t number(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

}  // namespace

CUresult find_side(const CopySideWords& from, const CopyBox& box, CopyPlace* place, BoxSide* out) {
  std::uint64_t address = from.device;
  switch (from.type) {
    case CU_MEMORYTYPE_HOST:
      *place = CopyPlace::kHost;
      address = number(from.host);
      break;
    case CU_MEMORYTYPE_DEVICE:
      *place = CopyPlace::kDevice;
      break;
    case CU_MEMORYTYPE_UNIFIED:
      *place = CopyPlace::kUnified;
      break;
    case CU_MEMORYTYPE_ARRAY: {
      *place = CopyPlace::kDevice;
      const auto array = handles().find<Array>(from.array);
      if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
      return array->place(from.x_bytes, from.y, from.z, box, out);
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  const std::uint64_t row = from.pitch == 0 ? box.width_bytes : from.pitch;
  if (row < box.width_bytes + from.x_bytes) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t slice = row * (from.height == 0 ? box.height : from.height);
  *out = {address + from.z * slice + from.y * row + from.x_bytes, row, slice};
  return CUDA_SUCCESS;
}

namespace {

CUresult make_call(const CUDA_MEMCPY2D& from, CopyCall* call) {
  CopyBox& box = call->box;
  box.width_bytes = from.WidthInBytes;
  box.height = from.Height;
  GPURUN_TRY(find_side({from.srcMemoryType, from.srcHost, from.srcDevice, from.srcArray,
                        from.srcXInBytes, from.srcY, 0, from.srcPitch, 0},
                       box, &call->source, &box.source));
  return find_side({from.dstMemoryType, from.dstHost, from.dstDevice, from.dstArray,
                    from.dstXInBytes, from.dstY, 0, from.dstPitch, 0},
                   box, &call->destination, &box.destination);
}

CUresult make_call(const CUDA_MEMCPY3D& from, CopyCall* call) {
  if (from.srcLOD != 0 || from.dstLOD != 0 || from.reserved0 != nullptr ||
      from.reserved1 != nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // A slice must hold the lines that are copied of it, except the last slice.
  const auto too_low = [&](CUmemorytype type, std::size_t height, std::size_t y) {
    return type != CU_MEMORYTYPE_ARRAY && height != 0 && from.Depth > 1 &&
           (y > height || from.Height > height - y);
  };
  if (too_low(from.srcMemoryType, from.srcHeight, from.srcY) ||
      too_low(from.dstMemoryType, from.dstHeight, from.dstY)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CopyBox& box = call->box;
  box.width_bytes = from.WidthInBytes;
  box.height = from.Height;
  box.depth = from.Depth;
  GPURUN_TRY(find_side({from.srcMemoryType, from.srcHost, from.srcDevice, from.srcArray,
                        from.srcXInBytes, from.srcY, from.srcZ, from.srcPitch, from.srcHeight},
                       box, &call->source, &box.source));
  return find_side({from.dstMemoryType, from.dstHost, from.dstDevice, from.dstArray,
                    from.dstXInBytes, from.dstY, from.dstZ, from.dstPitch, from.dstHeight},
                   box, &call->destination, &box.destination);
}

}  // namespace

std::shared_ptr<const CUDA_MEMCPY3D> array_description(const CUDA_MEMCPY3D& from) {
  if (from.srcMemoryType != CU_MEMORYTYPE_ARRAY && from.dstMemoryType != CU_MEMORYTYPE_ARRAY) {
    return nullptr;
  }
  return std::make_shared<const CUDA_MEMCPY3D>(from);
}

CUresult make_copy_box(const CUDA_MEMCPY3D& from, CopyBox* box) {
  CopyCall call;
  GPURUN_TRY(make_call(from, &call));
  const CopyBox& made = call.box;
  if (made.width_bytes != 0 && made.height != 0 && made.depth != 0) {
    GPURUN_TRY(check_side(call.source, made.source, made));
    GPURUN_TRY(check_side(call.destination, made.destination, made));
  }
  *box = made;
  return CUDA_SUCCESS;
}

namespace {

CUresult copy_3d(const CUDA_MEMCPY3D* from, CUstream stream, bool wait) {
  GPURUN_ENTER(context);
  if (from == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CopyCall call;
  GPURUN_TRY(make_copy_box(*from, &call.box));
  call.described = array_description(*from);
  call.wait = wait;
  return issue_copy(stream, call);
}

CUDA_MEMCPY3D with_depth(const CUDA_MEMCPY2D& from) {
  CUDA_MEMCPY3D out{};
  out.srcXInBytes = from.srcXInBytes;
  out.srcY = from.srcY;
  out.srcMemoryType = from.srcMemoryType;
  out.srcHost = from.srcHost;
  out.srcDevice = from.srcDevice;
  out.srcArray = from.srcArray;
  out.srcPitch = from.srcPitch;
  out.dstXInBytes = from.dstXInBytes;
  out.dstY = from.dstY;
  out.dstMemoryType = from.dstMemoryType;
  out.dstHost = from.dstHost;
  out.dstDevice = from.dstDevice;
  out.dstArray = from.dstArray;
  out.dstPitch = from.dstPitch;
  out.WidthInBytes = from.WidthInBytes;
  out.Height = from.Height;
  out.Depth = 1;
  return out;
}

CUresult copy_2d(const CUDA_MEMCPY2D* from, CUstream stream, bool wait) {
  GPURUN_ENTER(context);
  if (from == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CopyCall call;
  GPURUN_TRY(make_call(*from, &call));
  call.described = array_description(with_depth(*from));
  call.wait = wait;
  return issue_copy(stream, call);
}

CUDA_MEMCPY3D without_contexts(const CUDA_MEMCPY3D_PEER* from) {
  CUDA_MEMCPY3D plain{};
  plain.srcXInBytes = from->srcXInBytes;
  plain.srcY = from->srcY;
  plain.srcZ = from->srcZ;
  plain.srcLOD = from->srcLOD;
  plain.srcMemoryType = from->srcMemoryType;
  plain.srcHost = from->srcHost;
  plain.srcDevice = from->srcDevice;
  plain.srcArray = from->srcArray;
  plain.srcPitch = from->srcPitch;
  plain.srcHeight = from->srcHeight;
  plain.dstXInBytes = from->dstXInBytes;
  plain.dstY = from->dstY;
  plain.dstZ = from->dstZ;
  plain.dstLOD = from->dstLOD;
  plain.dstMemoryType = from->dstMemoryType;
  plain.dstHost = from->dstHost;
  plain.dstDevice = from->dstDevice;
  plain.dstArray = from->dstArray;
  plain.dstPitch = from->dstPitch;
  plain.dstHeight = from->dstHeight;
  plain.WidthInBytes = from->WidthInBytes;
  plain.Height = from->Height;
  plain.Depth = from->Depth;
  return plain;
}

// Runs after everything that was issued to the current context and to the two of the copy, and
// before everything that is issued to them later. The host waits where it could see the difference
// (manual, cuMemcpyPeer and cuMemcpy3DPeer). `others`: nullptr where the structure names no
// context.
CUresult copy_between(const CopyBox& box, std::initializer_list<ContextPtr> others) {
  GPURUN_ENTER(context);
  const StreamPtr stream = find_stream(context, nullptr);
  auto operation = std::make_shared<CopyOperation>(box);
  GPURUN_TRY(check_stream_use(driver_abi::CaptureFamily::kWork, *stream));
  if (stream->capture() != nullptr) return submit(context, stream, std::move(operation));
  std::vector<ContextPtr> contexts{context};
  for (const ContextPtr& other : others) {
    if (other == nullptr || !other->is_active()) continue;
    if (std::find(contexts.begin(), contexts.end(), other) == contexts.end()) {
      contexts.push_back(other);
    }
  }
  const bool wait = is_seen_by_host(box.source.address) || is_seen_by_host(box.destination.address);
  const std::uint64_t position = issue_between(contexts, stream, std::move(operation));
  if (!wait) return CUDA_SUCCESS;
  stream->wait_for(position);
  context->flush_output();
  return context->sticky_error();
}

// The context that a side of CUDA_MEMCPY3D_PEER names. Host memory needs none.
CUresult find_peer(CUcontext handle, CUmemorytype type, ContextPtr* context) {
  *context = handles().find<Context>(handle);
  const bool needed = handle != nullptr || type == CU_MEMORYTYPE_DEVICE;
  return *context == nullptr && needed ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

}  // namespace
}  // namespace gpurun::emulated

namespace gpurun::emulated::api {

CUresult cuMemcpy(CUdeviceptr destination, CUdeviceptr source, size_t bytes) {
  return copy_line(nullptr, destination, CopyPlace::kUnified, source, CopyPlace::kUnified, bytes,
                   true);
}
CUresult cuMemcpyAsync(CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream) {
  return copy_line(stream, destination, CopyPlace::kUnified, source, CopyPlace::kUnified, bytes,
                   false);
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr destination, const void* source, size_t bytes) {
  return copy_line(nullptr, destination, CopyPlace::kDevice, number(source), CopyPlace::kHost,
                   bytes, true);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr destination, const void* source, size_t bytes,
                              CUstream stream) {
  return copy_line(stream, destination, CopyPlace::kDevice, number(source), CopyPlace::kHost, bytes,
                   false);
}
CUresult cuMemcpyDtoH_v2(void* destination, CUdeviceptr source, size_t bytes) {
  return copy_line(nullptr, number(destination), CopyPlace::kHost, source, CopyPlace::kDevice,
                   bytes, true);
}
CUresult cuMemcpyDtoHAsync_v2(void* destination, CUdeviceptr source, size_t bytes,
                              CUstream stream) {
  return copy_line(stream, number(destination), CopyPlace::kHost, source, CopyPlace::kDevice, bytes,
                   false);
}
// The host does not wait for copies between device memory (manual, "API synchronization behavior").
// Pinned and managed memory have device addresses, too.
CUresult cuMemcpyDtoD_v2(CUdeviceptr destination, CUdeviceptr source, size_t bytes) {
  return copy_line(nullptr, destination, CopyPlace::kDevice, source, CopyPlace::kDevice, bytes,
                   is_seen_by_host(destination) || is_seen_by_host(source));
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr destination, CUdeviceptr source, size_t bytes,
                              CUstream stream) {
  return copy_line(stream, destination, CopyPlace::kDevice, source, CopyPlace::kDevice, bytes,
                   false);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr destination, CUcontext destination_context,
                           CUdeviceptr source, CUcontext source_context, size_t bytes,
                           CUstream stream) {
  if (handles().find<Context>(destination_context) == nullptr ||
      handles().find<Context>(source_context) == nullptr) {
    GPURUN_ENTER(context);
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  return copy_line(stream, destination, CopyPlace::kDevice, source, CopyPlace::kDevice, bytes,
                   false);
}
CUresult cuMemcpyPeer(CUdeviceptr destination, CUcontext destination_context, CUdeviceptr source,
                      CUcontext source_context, size_t bytes) {
  GPURUN_ENTER(context);
  const ContextPtr to = handles().find<Context>(destination_context);
  const ContextPtr from = handles().find<Context>(source_context);
  if (to == nullptr || from == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (bytes == 0) return CUDA_SUCCESS;
  CopyBox box;
  box.source.address = source;
  box.destination.address = destination;
  box.width_bytes = bytes;
  GPURUN_TRY(check_side(CopyPlace::kDevice, box.source, box));
  GPURUN_TRY(check_side(CopyPlace::kDevice, box.destination, box));
  return copy_between(box, {from, to});
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* from) { return copy_2d(from, nullptr, true); }
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* from) { return copy_2d(from, nullptr, true); }
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* from, CUstream stream) {
  return copy_2d(from, stream, false);
}
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* from) { return copy_3d(from, nullptr, true); }
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* from, CUstream stream) {
  return copy_3d(from, stream, false);
}
CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* from) {
  GPURUN_ENTER(context);
  if (from == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ContextPtr source, destination;
  GPURUN_TRY(find_peer(from->srcContext, from->srcMemoryType, &source));
  GPURUN_TRY(find_peer(from->dstContext, from->dstMemoryType, &destination));
  CopyBox box;
  GPURUN_TRY(make_copy_box(without_contexts(from), &box));
  if (box.width_bytes == 0 || box.height == 0 || box.depth == 0) return CUDA_SUCCESS;
  return copy_between(box, {source, destination});
}
CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* from, CUstream stream) {
  GPURUN_ENTER(context);
  if (from == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_MEMCPY3D plain = without_contexts(from);
  return copy_3d(&plain, stream, false);
}

namespace {

// Issues each copy separately, in stream order. A source that must be read before the call returns
// is read at once. If it is on a device, the call waits for the copy. Others are read as those of
// any asynchronous copy. `failed`: the first copy that was not issued, or SIZE_MAX when the failure
// is not one copy's.
CUresult copy_all(const driver_abi::CopyBatch& batch, std::size_t* failed, CUstream stream,
                  bool legacy_too) {
  *failed = std::numeric_limits<std::size_t>::max();
  GPURUN_ENTER(context);
  if (!batch.valid()) return CUDA_ERROR_INVALID_VALUE;
  const StreamPtr found = find_stream(context, stream);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // cuda.h about batches: "must not be legacy NULL stream".
  if (!legacy_too && found == context->legacy_stream()) return CUDA_ERROR_INVALID_VALUE;
  const bool captured = found->capture() != nullptr;
  return static_cast<CUresult>(
      batch.visit(failed, [&](std::size_t i, CUmemcpySrcAccessOrder order) {
        const bool now = !captured && order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
        const auto from = memory_registry().find(batch.sources[i]);
        const bool on_device = from.has_value() && !from->on_host();
        return copy_line(stream, batch.destinations[i], CopyPlace::kUnified, batch.sources[i],
                         CopyPlace::kUnified, batch.bytes[i], now && on_device, now);
      }));
}

}  // namespace

CUresult cuMemcpyBatchAsync(CUdeviceptr* destinations, CUdeviceptr* sources, size_t* bytes,
                            size_t count, CUmemcpyAttributes* attributes, size_t* firsts,
                            size_t attribute_count, size_t* failed, CUstream stream) {
  std::size_t nobody_asks = 0;
  return copy_all({destinations, sources, bytes, count, attributes, firsts, attribute_count},
                  failed != nullptr ? failed : &nobody_asks, stream, false);
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* destinations, CUdeviceptr* sources, size_t* bytes,
                               size_t count, CUmemcpyAttributes* attributes, size_t* firsts,
                               size_t attribute_count, CUstream stream) {
  return api::cuMemcpyBatchAsync(destinations, sources, bytes, count, attributes, firsts,
                                 attribute_count, nullptr, stream);
}

CUresult cuMemcpyWithAttributesAsync(CUdeviceptr destination, CUdeviceptr source, size_t bytes,
                                     CUmemcpyAttributes* attributes, CUstream stream) {
  std::size_t nobody_asks = 0;
  const std::size_t first = 0;
  return copy_all({&destination, &source, &bytes, 1, attributes, &first, 1}, &nobody_asks, stream,
                  true);
}

}  // namespace gpurun::emulated::api
