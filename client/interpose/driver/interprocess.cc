// Interprocess memory: device memory that processes share (cuIpc*, docs/adr/0018). The worker
// tracks the owners and users. This file has the program's calls and the addresses that it gets.
// Calls of events are generated.
#include <cstring>

#include "client/interpose/call/forward.h"
#include "client/interpose/call/stream.h"
#include "client/interpose/custom.h"
#include "client/interpose/driver/interprocess.h"
#include "client/interpose/driver/memory_sharing.h"
#include "client/interpose/memory/device_windows.h"
#include "client/interpose/memory/memory_ranges.h"
#include "protocol/calls/device_memory.h"
#include "protocol/calls/interprocess.h"

namespace gpurun::client::interpose {
namespace {

CallSite raw(CallSite site, std::uint16_t code) {
  site.opcode = code;
  site.form = protocol::Form::kRaw;
  return site;
}

// Undoes an opening that the program has not seen.
void take_back(const EntryContext& here, const protocol::OpenGrant& grant) {
  protocol::CloseRequest close;
  close.address = grant.address;
  Reply reply;
  (void)here.session().call(*here.lane, raw(here.site(), opcode::cuIpcCloseMemHandle),
                            bytes_of(close), &reply);
}

// Opens the memory that the handle names. Its address is in the window of the current context's
// device, if that has a window or can have one now. Returns a CUresult.
int open_shared_memory(const EntryContext& here, protocol::OpenRequest request,
                       protocol::OpenGrant* grant) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    const WindowPlace wished = wished_window(here);
    request.wished_window = wished.base;
    request.window_bytes = wished.bytes;
    Reply reply;
    const int result =
        here.session().call(*here.lane, raw(here.passing_site(), opcode::cuIpcOpenMemHandle_v2),
                            bytes_of(request), &reply);
    if (reply.result != 0 || reply.payload.size() != sizeof *grant) {
      return result != 0 ? result : reply.result != 0 ? reply.result : int{CUDA_ERROR_UNKNOWN};
    }
    std::memcpy(grant, reply.payload.data(), sizeof *grant);
    if (here.devices().ordinal_of_server(static_cast<int>(grant->device)) < 0) {
      // The worker has the device, but the program does not (CUDA_VISIBLE_DEVICES).
      take_back(here, *grant);
      return CUDA_ERROR_MAP_FAILED;
    }
    if (wished.base == 0 || grant->window == 0 ||
        hold_window(here, {grant->window, grant->window_bytes})) {
      return 0;
    }
    // This process cannot hold the window. The worker closes it, and the next attempt uses none.
    take_back(here, *grant);
    protocol::MemoryReturn all;
    all.kind = protocol::ReturnKind::kWindow;
    all.device = static_cast<std::uint32_t>(here.context->server_ordinal);
    CallSite site = raw(here.site(protocol::Order::kOrderedHost), opcode::cuMemFree_v2);
    (void)here.session().call(*here.lane, site, bytes_of(all), &reply);
  }
  return CUDA_ERROR_MAP_FAILED;
}

}  // namespace

bool end_sharing(const EntryContext& here, const MemoryRange& range) {
  CallSite site;
  site.form = protocol::Form::kRaw;
  site.order = protocol::Order::kOrderedHost;
  if (range.kind == MemoryKind::kImported) {
    protocol::CloseRequest close;
    close.address = range.base;
    close.all = 1;
    site.opcode = opcode::cuIpcCloseMemHandle;
    (void)here.session().post(*here.lane, site, bytes_of(close));
    return true;
  }
  if (range.shared) {
    protocol::ShareRequest ended;
    ended.address = range.base;
    site.opcode = opcode::cuIpcGetMemHandle;
    // The worker cannot make a context current that has ended.
    const Context* const owner = find_context(*here.process, range.context);
    const bool lives = owner != nullptr && owner->active.load(std::memory_order_acquire);
    site.context = lives ? range.context : 0;
    (void)here.session().post(*here.lane, site, bytes_of(ended));
  }
  return range.shared;
}

}  // namespace gpurun::client::interpose

namespace gpurun::client::interpose::custom {

CUresult cuIpcGetMemHandle(CUipcMemHandle* out, CUdeviceptr address) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Neither memory of pools, nor another process's.
  const auto range = find_range(address);
  if (!range.has_value() || range->kind != MemoryKind::kDevice) return CUDA_ERROR_INVALID_VALUE;
  const Context* const owner = find_context(*here.process, range->context);
  if (owner == nullptr) return CUDA_ERROR_INVALID_VALUE;
  MemorySharing sharing(here);
  if (const int result = sharing.settle(); result != 0) return cuda(result);
  protocol::ShareRequest request;
  request.address = range->base;
  request.bytes = range->bytes;
  request.device = static_cast<std::uint32_t>(owner->server_ordinal);
  CallSite site = raw(here.passing_site(), opcode::cuIpcGetMemHandle);
  site.context = range->context;
  Reply reply;
  const int result = here.session().call(*here.lane, site, bytes_of(request), &reply);
  if (reply.result != 0 || reply.payload.size() != sizeof *out) {
    return cuda(result != 0 ? result : int{CUDA_ERROR_UNKNOWN});
  }
  std::memcpy(out, reply.payload.data(), sizeof *out);
  if (note_shared(range->base)) sharing.keep();
  return cuda(result);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* out, CUipcMemHandle handle, unsigned flags) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  if (out == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  MemorySharing sharing(here);
  if (const int result = sharing.settle(); result != 0) return cuda(result);
  protocol::OpenRequest request;
  static_assert(sizeof handle == sizeof request.handle);
  std::memcpy(request.handle.data(), &handle, sizeof handle);
  request.flags = flags;
  protocol::OpenGrant grant;
  if (const int result = open_shared_memory(here, request, &grant); result != 0) {
    return cuda(result);
  }
  MemoryRange range;
  range.base = grant.address;
  range.bytes = grant.bytes;
  range.kind = MemoryKind::kImported;
  range.ordinal = here.devices().ordinal_of_server(static_cast<int>(grant.device));
  range.context = here.context->handle;
  if (add_range(range)) sharing.keep();  // A second opening finds the range.
  *out = grant.address;
  return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  const auto range = find_range(address);
  // The worker decides about addresses that we do not know.
  if (range.has_value() && (range->base != address || range->kind != MemoryKind::kImported)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  protocol::CloseRequest request;
  request.address = address;
  CallSite site = raw(here.site(), opcode::cuIpcCloseMemHandle);
  if (range.has_value()) site.context = range->context;
  Reply reply;
  const int result = here.session().call(*here.lane, site, bytes_of(request), &reply);
  protocol::CloseReply closed;
  if (reply.result != 0 || reply.payload.size() != sizeof closed) {
    return cuda(result != 0 ? result : int{CUDA_ERROR_UNKNOWN});
  }
  std::memcpy(&closed, reply.payload.data(), sizeof closed);
  if (closed.left == 0 && remove_range(address, MemoryKind::kImported).has_value()) {
    here.session().unshare_memory();
  }
  return cuda(result);
}

}  // namespace gpurun::client::interpose::custom
