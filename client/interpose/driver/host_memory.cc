// Host memory: pinned host memory is plain memory of this process that later copies may use. The
// device cannot reach it, and the attributes say so.
#include "client/interpose/driver/host_memory.h"

#include <sys/mman.h>

#include "client/interpose/call/forward.h"
#include "client/interpose/capture/capture.h"
#include "client/interpose/custom.h"
#include "client/interpose/memory/implicit_wait.h"
#include "client/interpose/memory/memory_ranges.h"
#include "driver_abi/semantics/object_flags.h"

namespace gpurun::client::interpose {
namespace {

constexpr std::uint64_t kPageBytes = 4096;

std::uint64_t whole_pages(std::uint64_t bytes) {
  return (bytes + kPageBytes - 1) & ~(kPageBytes - 1);
}

CUresult allocate(void** out, size_t bytes, unsigned flags) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  if (out == nullptr || bytes == 0 || !driver_abi::is_host_alloc_flags(flags)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const int lost = here.session().health(here.context->handle); lost != 0) return cuda(lost);
  if (bytes > limits::kBulkBytesMax) return CUDA_ERROR_OUT_OF_MEMORY;
  void* memory =
      mmap(nullptr, whole_pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  MemoryRange range;
  range.base = reinterpret_cast<std::uintptr_t>(memory);
  range.bytes = bytes;
  range.kind = MemoryKind::kHost;
  range.ordinal = here.context->ordinal;
  range.context = here.context->handle;
  range.flags = flags;
  if (!add_range(range)) {
    munmap(memory, whole_pages(bytes));
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *out = memory;
  return CUDA_SUCCESS;
}

// In relaxed mode a program may end memory while a stream of its context captures. With an older
// worker, no wait for bytes that are still to arrive there is possible then.
int refuse_to_end(const EntryContext& here, const MemoryRange& range) {
  if (worker_keeps_order(here)) return 0;
  return here.session().host_write_outstanding() && context_captures(range.context)
             ? int{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED}
             : 0;
}

// The driver waits for the device in such a call. After the wait, copies have written all bytes
// into the memory and have read it completely.
int wait_before_end(const EntryContext& here, const MemoryRange& range) {
  const int result = wait_implicitly(here, range.context);
  const Handle current = here.context->handle;
  const int of_current = current == range.context ? 0 : wait_implicitly(here, current);
  here.session().await_read(byte_view(reinterpret_cast<const void*>(range.base), range.bytes));
  return result != 0 ? result : of_current;
}

}  // namespace

void free_host_range(const MemoryRange& range) noexcept {
  if (range.kind == MemoryKind::kHost) {
    munmap(reinterpret_cast<void*>(range.base), whole_pages(range.bytes));
  }
}

}  // namespace gpurun::client::interpose

namespace gpurun::client::interpose::custom {

CUresult cuMemAllocHost_v2(void** out, size_t bytes) { return allocate(out, bytes, 0); }

CUresult cuMemHostAlloc(void** out, size_t bytes, unsigned flags) {
  return allocate(out, bytes, flags);
}

CUresult cuMemFreeHost(void* memory) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  const auto base = reinterpret_cast<std::uintptr_t>(memory);
  const auto range = find_range(base);
  if (!range.has_value() || range->base != base || range->kind != MemoryKind::kHost) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const int result = refuse_to_end(here, *range); result != 0) return cuda(result);
  const int result = wait_before_end(here, *range);
  if (const auto removed = remove_range(base, MemoryKind::kHost); removed.has_value()) {
    free_host_range(*removed);
  }
  return cuda(result);
}

CUresult cuMemHostRegister_v2(void* memory, size_t bytes, unsigned flags) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  if (memory == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  // The device attribute READ_ONLY_HOST_REGISTER_SUPPORTED is 0.
  const CUresult wrong = driver_abi::check_host_register_flags(flags, false);
  if (wrong != CUDA_SUCCESS) return wrong;
  MemoryRange range;
  range.base = reinterpret_cast<std::uintptr_t>(memory);
  range.bytes = bytes;
  range.kind = MemoryKind::kRegistered;
  range.ordinal = here.context->ordinal;
  range.context = here.context->handle;
  range.flags = flags;
  return add_range(range) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

CUresult cuMemHostUnregister(void* memory) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  if (memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto base = reinterpret_cast<std::uintptr_t>(memory);
  const auto range = find_range(base);
  if (!range.has_value() || range->base != base || range->kind != MemoryKind::kRegistered) {
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  }
  if (const int result = refuse_to_end(here, *range); result != 0) return cuda(result);
  const int result = wait_before_end(here, *range);
  (void)remove_range(base, MemoryKind::kRegistered);
  return cuda(result);
}

// Registered memory was not allocated, so it has no flags (manual).
CUresult cuMemHostGetFlags(unsigned* flags, void* memory) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto range = find_range(reinterpret_cast<std::uintptr_t>(memory));
  if (!range.has_value() || range->kind != MemoryKind::kHost) return CUDA_ERROR_INVALID_VALUE;
  *flags = range->flags;
  return CUDA_SUCCESS;
}

// CAN_MAP_HOST_MEMORY is 0, because the device does not share this memory.
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* memory, unsigned flags) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto range = find_range(reinterpret_cast<std::uintptr_t>(memory));
  if (!range.has_value() || !range->on_host()) return CUDA_ERROR_INVALID_VALUE;
  *out = 0;
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace gpurun::client::interpose::custom
