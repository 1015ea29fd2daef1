// Host memory: pinned memory of the arena, which the device reaches, and other pinned memory. The
// latter is plain memory of this process that later copies may use. The attributes tell them apart.
#include "client/interpose/driver/host_memory.h"

#include <sys/mman.h>

#include "client/interpose/call/forward.h"
#include "client/interpose/capture/capture.h"
#include "client/interpose/custom.h"
#include "client/interpose/memory/host_arena.h"
#include "client/interpose/memory/implicit_wait.h"
#include "client/interpose/memory/memory_ranges.h"
#include "driver_abi/semantics/object_flags.h"

namespace gpurun::client::interpose {
namespace {

constexpr std::uint64_t kPageBytes = 4096;

std::uint64_t whole_pages(std::uint64_t bytes) {
  return (bytes + kPageBytes - 1) & ~(kPageBytes - 1);
}

// Returns 0, or the failure of an earlier call.
int end_memory(const EntryContext& here, const MemoryRange& range) {
  if (range.in_arena) return free_in_arena(here, range);
  free_host_range(range);
  return 0;
}

CUresult allocate(std::uint16_t code, void** out, size_t bytes, unsigned flags) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  if (out == nullptr || bytes == 0 || !driver_abi::is_host_alloc_flags(flags)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const int lost = here.session().health(here.context->handle); lost != 0) return cuda(lost);
  if (bytes > limits::kBulkBytesMax) return CUDA_ERROR_OUT_OF_MEMORY;
  MemoryRange range;
  int earlier = 0;
  const Use use = use_of_pinned_memory(*here.process, flags);
  void* memory = reinterpret_cast<void*>(allocate_in_arena(here, code, bytes, use, &earlier));
  range.in_arena = memory != nullptr;
  range.reached = range.in_arena && use == Use::kByDevice;
  if (memory == nullptr) {
    memory = mmap(nullptr, whole_pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                  -1, 0);
  }
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  range.base = reinterpret_cast<std::uintptr_t>(memory);
  range.bytes = bytes;
  range.kind = MemoryKind::kHost;
  range.ordinal = here.context->ordinal;
  range.context = here.context->handle;
  range.flags = flags;
  if (!add_range(range)) {
    (void)end_memory(here, range);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  here.session().take_back(byte_view(memory, bytes));  // As cuMemHostRegister().
  *out = memory;
  return cuda(earlier);
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
  const int result = wait_for_users(here, range);
  const ByteView memory = byte_view(reinterpret_cast<const void*>(range.base), range.bytes);
  here.session().await_read(memory);
  here.session().take_back(memory);
  return result;
}

}  // namespace

void free_host_range(const MemoryRange& range) noexcept {
  if (range.kind == MemoryKind::kHost && !range.in_arena) {
    munmap(reinterpret_cast<void*>(range.base), whole_pages(range.bytes));
  }
}

}  // namespace gpurun::client::interpose

namespace gpurun::client::interpose::custom {

CUresult cuMemAllocHost_v2(void** out, size_t bytes) {
  return allocate(opcode::cuMemAllocHost_v2, out, bytes, 0);
}

CUresult cuMemHostAlloc(void** out, size_t bytes, unsigned flags) {
  return allocate(opcode::cuMemHostAlloc, out, bytes, flags);
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
  int result = wait_before_end(here, *range);
  if (const auto removed = remove_range(base, MemoryKind::kHost); removed.has_value()) {
    const int earlier = end_memory(here, *removed);
    if (result == 0) result = earlier;
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
  if (!add_range(range)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  // A context that ended while its memory was read may have left other memory lent at this address.
  here.session().take_back(byte_view(memory, bytes));
  return CUDA_SUCCESS;
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
  int result = wait_before_end(here, *range);
  if (const auto removed = remove_range(base, MemoryKind::kRegistered); removed.has_value()) {
    const int earlier = end_view(here, *removed);
    if (result == 0) result = earlier;
  }
  return cuda(result);
}

// Registered memory was not allocated, so it has no flags (manual).
CUresult cuMemHostGetFlags(unsigned* flags, void* memory) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto range = find_range(reinterpret_cast<std::uintptr_t>(memory));
  if (!range.has_value() || range->kind != MemoryKind::kHost) return CUDA_ERROR_INVALID_VALUE;
  // Unified addressing implies the flag.
  *flags = range->flags | (range->reached ? unsigned{CU_MEMHOSTALLOC_DEVICEMAP} : 0U);
  return CUDA_SUCCESS;
}

// Registered memory stays out of the device's reach, as does memory outside the arena.
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* memory, unsigned flags) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto range = find_range(reinterpret_cast<std::uintptr_t>(memory));
  if (!range.has_value() || !range->on_host()) return CUDA_ERROR_INVALID_VALUE;
  const int result = let_device_reach(here, *range);
  // It may be reached although an earlier call has failed.
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  const auto now = find_range(address);
  *out = 0;
  if (now->reached) *out = address;
  if (now->view != 0) *out = now->view + (address - now->base);
  return cuda(result);
}

}  // namespace gpurun::client::interpose::custom
