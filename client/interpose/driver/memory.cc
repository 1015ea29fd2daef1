// Device memory: cuMemAlloc uses credits if there are any (device_windows.h). Other allocations
// wait for the worker, which alone knows addresses. A free waits only if the program could notice.
#include <algorithm>

#include "client/interpose/call/forward.h"
#include "client/interpose/call/refusals.h"
#include "client/interpose/call/stream.h"
#include "client/interpose/capture/capture.h"
#include "client/interpose/capture/stream_argument.h"
#include "client/interpose/custom.h"
#include "client/interpose/driver/exported_handles.h"
#include "client/interpose/driver/interprocess.h"
#include "client/interpose/memory/device_windows.h"
#include "client/interpose/memory/graph_memory.h"
#include "client/interpose/memory/host_arena.h"
#include "client/interpose/memory/implicit_wait.h"
#include "client/interpose/memory/kept_frees.h"
#include "client/interpose/memory/managed_memory.h"
#include "client/interpose/memory/memory_ranges.h"
#include "client/interpose/memory/used_memory.h"
#include "driver_abi/semantics/planes.h"

namespace gpurun::client::interpose {
namespace {

CUresult keep(const EntryContext& here, CUdeviceptr address, std::uint64_t bytes, MemoryKind kind,
              Handle owner) {
  MemoryRange range;
  range.base = address;
  range.bytes = bytes;
  range.kind = kind;
  range.ordinal = here.context->ordinal;
  range.context = here.context->handle;
  range.owner = owner;
  (void)add_range(range);
  return CUDA_SUCCESS;
}

// `pool` 0: the device's own pool.
CUresult allocate_async(CUdeviceptr* out, size_t bytes, Handle pool, CUstream given) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  Handle stream = 0;
  if (const int result = resolve_stream(here, given, &stream); result != 0) return cuda(result);
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  // The memory is of the stream's device, whatever context is current (manual, cuMemAllocAsync).
  here.context = find_context(*here.process, context_of_stream(here, stream));
  if (here.context == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUdeviceptr address = 0;
  const auto allocate = [&](const CallSite& site) {
    return pool == 0 ? call_row(here, opcode::cuMemAllocAsync, site, {}, &address, bytes,
                                as<CUstream>(stream))
                     : call_row(here, opcode::cuMemAllocFromPoolAsync, site, {}, &address, bytes,
                                as<CUmemoryPool>(pool), as<CUstream>(stream));
  };
  // Ordered before the stream's queued work, which cannot use memory that does not exist yet. If
  // there is no memory, the second attempt waits for what that work frees.
  const CallSite early = here.passing_site();
  int result = CUDA_ERROR_OUT_OF_MEMORY;
  const bool captured = is_captured(here, stream);
  const bool counted = pool == 0 && !captured;
  if (counted) {
    if (const int lost = here.session().health(here.context->handle); lost != 0) return cuda(lost);
    if (take_kept_free(here, stream, bytes, out)) {
      return keep(here, *out, bytes, MemoryKind::kPool, 0);
    }
  }
  if (!captured) result = allocate(early);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && !captured && kept_frees_exist()) {
    post_kept_frees(here);
    result = allocate(early);  // Behind the frees that are done.
  }
  if (result == CUDA_ERROR_OUT_OF_MEMORY && address == 0) {
    result = or_without_credits(here, [&] { return allocate(here.stream_site(stream)); });
  }
  if (counted) count_allocation(here, bytes, address != 0);
  if (address == 0) return cuda(result);
  if (captured) {
    keep_graph_memory(address, bytes, here.context->ordinal);
  } else {
    keep(here, address, bytes, MemoryKind::kPool, pool);
  }
  *out = address;
  return cuda(result);
}

// It ends with its library alone.
bool is_managed_variable(std::uint64_t address) {
  const auto range = find_range(address);
  return range.has_value() && range->kind == MemoryKind::kManaged && range->owner != 0;
}

// The driver waits for the device first, as for other memory. The program sees the memory, so this
// is never answered early.
int end_managed(const EntryContext& here, const MemoryRange& range) {
  const int result = wait_for_users(here, range);
  const int earlier = free_managed_memory(here, range);
  return result != 0 ? result : earlier;
}

}  // namespace
}  // namespace gpurun::client::interpose

namespace gpurun::client::interpose::custom {

CUresult cuMemAlloc_v2(CUdeviceptr* out, size_t bytes) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  return cuda(allocate_device_memory(here, bytes, out));
}

CUresult cuMemAllocManaged(CUdeviceptr* out, size_t bytes, unsigned flags) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  if (out == nullptr || bytes == 0 ||
      (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const int lost = here.session().health(here.context->handle); lost != 0) return cuda(lost);
  if (!may_have_host_arena(*here.process)) {
    return refuse_managed_memory(*driver_abi::find_row(opcode::cuMemAllocManaged));
  }
  return cuda(allocate_managed_memory(here, bytes, flags, out));
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* out, size_t* pitch_out, size_t width, size_t height,
                            unsigned element_bytes) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  if (out == nullptr || pitch_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUdeviceptr address = 0;
  size_t pitch = 0;
  const CUresult wrong = driver_abi::choose_pitch(width, height, element_bytes, &pitch);
  if (wrong != CUDA_SUCCESS) return wrong;
  if (may_be_windowed(here, pitch * height)) {
    const int result = allocate_device_memory(here, pitch * height, &address);
    if (address == 0) return cuda(result);
    *out = address;
    *pitch_out = pitch;
    return cuda(result);
  }
  CallSite site = here.passing_site();
  const int result = or_without_credits(here, [&] {
    const int attempt = call_row(here, opcode::cuMemAllocPitch_v2, site, {}, &address, &pitch,
                                 width, height, element_bytes);
    site = here.site();  // The second attempt comes after earlier frees and returns.
    return attempt;
  });
  if (address == 0) return cuda(result);
  keep(here, address, pitch * height, MemoryKind::kDevice, 0);
  *out = address;
  *pitch_out = pitch;
  return cuda(result);
}

CUresult cuMemAllocAsync(CUdeviceptr* out, size_t bytes, CUstream stream) {
  return allocate_async(out, bytes, 0, stream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* out, size_t bytes, CUmemoryPool pool,
                                 CUstream stream) {
  EntryContext here;
  if (const int result = here.enter(); result != 0) return cuda(result);
  const Handle handle = handle_of(pool);
  if (const int result = here.check(handle, HandleKind::kMemoryPool); result != 0) {
    return cuda(result);
  }
  stop_keeping_frees(here);  // It may be the device's own pool.
  return allocate_async(out, bytes, handle, stream);
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  if (address == 0) return CUDA_SUCCESS;
  if (const int result = refuse_unsafe_call(here); result != 0) return cuda(result);
  if (const int lost = here.session().health(here.context->handle); lost != 0) return cuda(lost);
  if (is_graph_memory(address)) return cuda(free_graph_memory(here, address));
  auto range = remove_range(address, MemoryKind::kDevice);
  if (!range.has_value()) range = remove_range(address, MemoryKind::kPool);
  if (!range.has_value() && !is_managed_variable(address)) {
    range = remove_range(address, MemoryKind::kManaged);
  }
  if (!range.has_value()) return CUDA_ERROR_INVALID_VALUE;
  if (range->kind == MemoryKind::kManaged) return cuda(end_managed(here, *range));
  count_end_of_pool_memory(*range);
  const bool shared = end_sharing(here, *range);
  const int result = range->kind == MemoryKind::kPool
                         ? free_pool_memory(here, range->context, address)
                         : free_device_memory(here, *range, true);
  if (shared) here.session().unshare_memory();
  return cuda(result);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream given) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  Handle stream = 0;
  if (const int result = resolve_stream(here, given, &stream); result != 0) return cuda(result);
  if (const int lost = here.session().health(here.context->handle); lost != 0) return cuda(lost);
  // Memory of graphs stays for the next launch. A captured free is a node, which takes no other
  // memory (manual, cuMemFreeAsync). Only the driver knows what either of them may free.
  const bool captured = is_captured(here, stream);
  if (is_graph_memory(address) || captured) {
    const bool posted = !captured && may_be_posted(here, address);
    const CallSite site = here.stream_site(stream);
    return cuda(
        posted ? post_row(here, opcode::cuMemFreeAsync, site, {}, address, as<CUstream>(stream))
               : call_row(here, opcode::cuMemFreeAsync, site, {}, address, as<CUstream>(stream)));
  }
  auto range = remove_range(address, MemoryKind::kPool);
  if (!range.has_value()) range = remove_range(address, MemoryKind::kDevice);
  if (!range.has_value()) return CUDA_ERROR_INVALID_VALUE;
  if (end_sharing(here, *range)) here.session().unshare_memory();
  // In the stream's order, which no call waits for. Memory in a window waits in quarantine.
  if (device_of_window(address) >= 0) return cuda(free_device_memory(here, *range, false));
  if (keep_free(here, stream, *range)) return CUDA_SUCCESS;
  return cuda(post_row(here, opcode::cuMemFreeAsync, here.stream_site(stream), {}, address,
                       as<CUstream>(stream)));
}

CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  if (free_bytes == nullptr || total_bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int result = ask_free_bytes(here, free_bytes, total_bytes);
  // Credits that this process holds but does not use count as free.
  if (result == 0) {
    *free_bytes =
        std::min(*free_bytes + idle_credit_bytes(here.context->server_ordinal), *total_bytes);
  }
  return cuda(result);
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  auto range = find_range(address);
  if (const int earlier = ask_for_graph_memory(here, address, &range); earlier != 0) {
    return cuda(earlier);
  }
  if (range.has_value()) {
    if (base != nullptr) *base = range->base;
    if (bytes != nullptr) *bytes = range->bytes;
    return CUDA_SUCCESS;
  }
  int result = CUDA_ERROR_NOT_FOUND;
  if (device_of_window(address) < 0) {
    result = call_row(here, opcode::cuMemGetAddressRange_v2, here.passing_site(), {}, base, bytes,
                      address);
  }
  if (result == CUDA_ERROR_NOT_FOUND) {  // As driver 580 leaves them.
    if (base != nullptr) *base = 0;
    if (bytes != nullptr) *bytes = 0;
  }
  return cuda(result);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* out, size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long flags) {
  EntryContext here;
  if (const int result = here.enter(); result != 0) return cuda(result);
  if (out == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (static_cast<unsigned>(properties->location.type) > CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Host memory would have to be the client's, so it is refused. For a server that shares nothing
  // by descriptors, memory is made without that property, and its export is refused. NCCL asks for
  // it for all its memory, and never exports memory that stays in one process.
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      (properties->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const Device* device = here.devices().device(properties->location.id);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  CUmemAllocationProp theirs = *properties;
  theirs.location.id = device->server_ordinal;
  if (!shares_by_descriptors(here)) theirs.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
  const Handle handle = here.handles().mint(HandleKind::kAllocation, 0, nullptr);
  if (handle == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  CUmemGenericAllocationHandle placed = 0;
  int result = call_row(here, opcode::cuMemCreate, here.passing_site(), {handle}, &placed, bytes,
                        &theirs, flags);
  // Memory lives until its last descriptor is closed.
  if (placed == 0 && result == CUDA_ERROR_OUT_OF_MEMORY && end_closed_handles(here)) {
    for (const CallSite& later : {after_closed_handles(), here.site()}) {
      result = call_row(here, opcode::cuMemCreate, later, {handle}, &placed, bytes, &theirs, flags);
      if (placed != 0 || result != CUDA_ERROR_OUT_OF_MEMORY) break;
    }
  }
  if (placed == 0) {
    here.handles().retire(handle);
    return cuda(result);
  }
  count_memory(placed, properties->location.id, bytes);
  *out = placed;
  return cuda(result);
}

}  // namespace gpurun::client::interpose::custom
