// Shareable handles: allocations and pools that processes share by descriptors (docs/adr/0041). The
// daemon keeps the driver's descriptors. The program's descriptors carry tokens for them.
#include <cstring>

#include "client/interpose/call/forward.h"
#include "client/interpose/custom.h"
#include "client/interpose/driver/exported_handles.h"
#include "client/interpose/driver/memory_sharing.h"
#include "protocol/calls/shareable_handle.h"

namespace gpurun::client::interpose {
namespace {

using protocol::SharingHandle;

CallSite raw(CallSite site, std::uint16_t code) {
  site.opcode = code;
  site.form = protocol::Form::kRaw;
  site.work = Work::kNone;
  return site;
}

int export_object(const EntryContext& here, std::uint16_t code, Handle object, int* descriptor) {
  // From now on a process that gets the descriptor may look at the memory. This process cannot know
  // when the last one has ended.
  MemorySharing sharing(here);
  if (const int result = sharing.settle(); result != 0) return result;
  protocol::ExportRequest request;
  request.object = object;
  Reply reply;
  int result =
      here.session().call(*here.lane, raw(here.passing_site(), code), bytes_of(request), &reply);
  // Ended exports make room for others.
  if (reply.result == CUDA_ERROR_OUT_OF_MEMORY && end_closed_handles(here)) {
    result = here.session().call(*here.lane, raw(after_closed_handles(), code), bytes_of(request),
                                 &reply);
  }
  SharingHandle token{};
  if (reply.result != 0 || reply.payload.size() != sizeof token) {
    return result != 0 ? result : reply.result != 0 ? reply.result : int{CUDA_ERROR_UNKNOWN};
  }
  std::memcpy(token.data(), reply.payload.data(), sizeof token);
  if (const int failed = make_exported_handle(here, code, token, descriptor); failed != 0) {
    end_exported_handle(here, code, token);
    return failed;
  }
  sharing.keep();
  return result;
}

// `*object` is set if the worker has imported it, even with the result of an earlier call.
int import_object(const EntryContext& here, std::uint16_t code, HandleKind kind,
                  const SharingHandle& token, Handle* object) {
  MemorySharing sharing(here);
  if (const int result = sharing.settle(); result != 0) return result;
  const Handle minted = here.handles().mint(kind, 0, nullptr);
  if (minted == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  protocol::ImportRequest request;
  request.token = token;
  request.minted = minted;
  Reply reply;
  const int result =
      here.session().call(*here.lane, raw(here.passing_site(), code), bytes_of(request), &reply);
  protocol::ImportGrant grant;
  if (reply.result != 0 || reply.payload.size() != sizeof grant) {
    here.handles().retire(minted);
    return result != 0 ? result : reply.result != 0 ? reply.result : int{CUDA_ERROR_UNKNOWN};
  }
  std::memcpy(&grant, reply.payload.data(), sizeof grant);
  if (grant.object != minted) {
    here.handles().retire(minted);
    here.handles().retain(grant.object);
  }
  *object = grant.object;
  // The worker has the device, but the program does not (CUDA_VISIBLE_DEVICES). A pool names its
  // device only with the first pointer.
  if (kind == HandleKind::kAllocation &&
      here.devices().ordinal_of_server(static_cast<int>(grant.device)) < 0) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  sharing.keep();
  return result;
}

// Gives up an import that the program has not seen.
void release(const EntryContext& here, CUmemGenericAllocationHandle memory) {
  CallSite site;
  site.order = protocol::Order::kOrderedHost;
  (void)post_row(here, opcode::cuMemRelease, site, {}, memory);
  here.handles().release(memory);
}

}  // namespace
}  // namespace gpurun::client::interpose

namespace gpurun::client::interpose::custom {

CUresult cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  EntryContext here;
  if (const int result = here.enter(); result != 0) return cuda(result);
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const int result = here.check(handle, HandleKind::kAllocation); result != 0) {
    return cuda(result);
  }
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !shares_by_descriptors(here)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  int descriptor = -1;
  const int result = export_object(here, opcode::cuMemExportToShareableHandle, handle, &descriptor);
  if (descriptor >= 0) std::memcpy(out, &descriptor, sizeof descriptor);
  return cuda(result);
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* out, void* os_handle,
                                        CUmemAllocationHandleType type) {
  EntryContext here;
  if (const int result = here.enter(); result != 0) return cuda(result);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !shares_by_descriptors(here)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const auto descriptor = static_cast<int>(reinterpret_cast<std::intptr_t>(os_handle));
  SharingHandle token{};
  if (!read_exported_handle(descriptor, opcode::cuMemExportToShareableHandle, &token)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Handle memory = 0;
  const int result = import_object(here, opcode::cuMemImportFromShareableHandle,
                                   HandleKind::kAllocation, token, &memory);
  if (memory == 0) return cuda(result);
  if (result == CUDA_ERROR_INVALID_DEVICE) {
    release(here, memory);
    return cuda(result);
  }
  *out = memory;
  return cuda(result);
}

CUresult cuMemPoolExportToShareableHandle(void* out, CUmemoryPool pool,
                                          CUmemAllocationHandleType type,
                                          unsigned long long flags) {
  EntryContext here;
  if (const int result = here.enter(); result != 0) return cuda(result);
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const int result = here.check(handle_of(pool), HandleKind::kMemoryPool); result != 0) {
    return cuda(result);
  }
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !shares_by_descriptors(here)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  int descriptor = -1;
  const int result =
      export_object(here, opcode::cuMemPoolExportToShareableHandle, handle_of(pool), &descriptor);
  if (descriptor >= 0) std::memcpy(out, &descriptor, sizeof descriptor);
  return cuda(result);
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* out, void* os_handle,
                                            CUmemAllocationHandleType type,
                                            unsigned long long flags) {
  EntryContext here;
  if (const int result = here.enter(); result != 0) return cuda(result);
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !shares_by_descriptors(here)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const auto descriptor = static_cast<int>(reinterpret_cast<std::intptr_t>(os_handle));
  SharingHandle token{};
  if (!read_exported_handle(descriptor, opcode::cuMemPoolExportToShareableHandle, &token)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Handle pool = 0;
  const int result = import_object(here, opcode::cuMemPoolImportFromShareableHandle,
                                   HandleKind::kMemoryPool, token, &pool);
  if (pool != 0) *out = as<CUmemoryPool>(pool);
  return cuda(result);
}

}  // namespace gpurun::client::interpose::custom
