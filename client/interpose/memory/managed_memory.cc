// Managed memory: ranges of the arena, and the advice on them.
#include "client/interpose/memory/managed_memory.h"

#include <atomic>

#include "client/host_memory/access_check.h"
#include "client/interpose/memory/host_arena.h"
#include "client/process/fork_guard.h"

namespace gpurun::client::interpose {
namespace {

// Never destroyed. A forked child makes its own, because a thread of the parent may hold the mutex.
std::atomic<driver_abi::MemoryAdvice*> g_advice{nullptr};
void forget_parents_advice() { g_advice.store(nullptr, std::memory_order_release); }

}  // namespace

driver_abi::MemoryAdvice& managed_advice() {
  driver_abi::MemoryAdvice* found = g_advice.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  fork_guard::in_each_child(&forget_parents_advice);
  auto* const made = new driver_abi::MemoryAdvice;
  if (g_advice.compare_exchange_strong(found, made, std::memory_order_acq_rel)) return *made;
  delete made;
  return *found;
}

bool managed_memory_exists() noexcept {
  return g_advice.load(std::memory_order_relaxed) != nullptr;
}

int allocate_managed_memory(const EntryContext& here, std::size_t bytes, unsigned flags,
                            CUdeviceptr* address) {
  MemoryRange range;
  int earlier = 0;
  range.base = allocate_in_arena(here, opcode::cuMemAllocManaged, bytes, Use::kByDevice, &earlier);
  if (range.base == 0) return earlier != 0 ? earlier : int{CUDA_ERROR_OUT_OF_MEMORY};
  range.bytes = bytes;
  range.kind = MemoryKind::kManaged;
  range.ordinal = here.context->ordinal;
  range.context = here.context->handle;
  range.in_arena = range.reached = true;
  range.flags = flags;
  if (!add_range(range)) {
    (void)free_in_arena(here, range);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  managed_advice().add(range.base, range.bytes);
  note_attachment(here, range.base, flags, 0);
  *address = range.base;
  return earlier;
}

void note_attachment(const EntryContext& here, CUdeviceptr address, unsigned flags, Handle stream) {
  using Attachment = AccessCheck::Attachment;
  AccessCheck* const check = AccessCheck::active();
  if (check == nullptr) return;
  const Attachment attachment = flags == CU_MEM_ATTACH_HOST     ? Attachment::kHost
                                : flags == CU_MEM_ATTACH_SINGLE ? Attachment::kStream
                                                                : Attachment::kGlobal;
  check->attach(address, attachment, {here.context == nullptr ? 0 : here.context->handle, stream});
}

int free_managed_memory(const EntryContext& here, const MemoryRange& range) {
  managed_advice().remove(range.base);
  return free_in_arena(here, range);
}

}  // namespace gpurun::client::interpose
