// Contexts: the current context of each thread, and the facts of each context.
#include "client/interpose/call/context.h"

#include "client/interpose/call/forward.h"
#include "client/interpose/call/remembered.h"
#include "client/interpose/capture/capture.h"
#include "client/interpose/custom.h"
#include "client/interpose/driver/context_objects.h"
#include "client/interpose/driver/host_memory.h"
#include "client/interpose/driver/interprocess.h"
#include "client/interpose/driver/object_pool.h"
#include "client/interpose/driver/primary_context.h"
#include "client/interpose/memory/device_windows.h"
#include "client/interpose/memory/host_arena.h"
#include "client/interpose/memory/kept_frees.h"
#include "client/interpose/memory/managed_memory.h"
#include "client/interpose/memory/memory_ranges.h"
#include "client/interpose/memory/used_memory.h"
#include "client/interpose/modules/objects.h"
#include "driver_abi/semantics/object_flags.h"
#include "driver_abi/state/context_storage.h"

namespace gpurun::client::interpose {
namespace {

constinit ObjectPool<Context> g_contexts;
std::atomic<std::uint64_t> g_last_context{0};

// The context that the program names, or the current one for NULL. It need not be active.
int named_context(const EntryContext& here, CUcontext given, Context** context) {
  const Handle handle = given == nullptr ? here.lane->context() : handle_of(given);
  if (handle == 0) return CUDA_ERROR_INVALID_CONTEXT;
  *context = find_context(*here.process, handle);
  return *context == nullptr ? int{CUDA_ERROR_INVALID_CONTEXT} : 0;
}

// Ends the object of a retired handle. The owner of each kind decides what that involves.
void retired(void*, HandleKind kind, Handle handle, void* object) {
  const bool memory = kind == HandleKind::kArray || kind == HandleKind::kMipmappedArray;
  if (memory) forget_memory(handle);
  end_object(kind, object);
}

CUresult create(CUcontext* out, unsigned flags, CUdevice ordinal, CUexecAffinityParam* affinities,
                int affinity_count) {
  EntryContext here;
  if (const int result = here.enter(); result != 0) return cuda(result);
  if (out == nullptr || !driver_abi::is_context_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  const Device* device = here.devices().device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Context* context = new_context(here, ordinal, false);
  if (context == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  CUcontext placed = nullptr;
  const CallSite site = here.passing_site();
  const int result = affinity_count == 0
                         ? call_row(here, opcode::cuCtxCreate_v2, site, {context->handle}, &placed,
                                    flags, device->server_ordinal)
                         : call_row(here, opcode::cuCtxCreate_v3, site, {context->handle}, &placed,
                                    affinities, affinity_count, flags, device->server_ordinal);
  if (placed == nullptr) {
    end_context(here, *context);
    return cuda(result != 0 ? result : int{CUDA_ERROR_UNKNOWN});
  }
  context->flags.store(flags, std::memory_order_relaxed);
  context->active.store(true, std::memory_order_release);
  count_context(context->server_ordinal, true);
  here.lane->push_context(context->handle);
  *out = as<CUcontext>(context->handle);
  return cuda(result);
}

}  // namespace

Context* new_context(const EntryContext& here, int ordinal, bool primary) {
  Context* context = g_contexts.take();
  if (context == nullptr) return nullptr;
  context->ordinal = ordinal;
  context->server_ordinal = here.devices().device(ordinal)->server_ordinal;
  context->primary = primary;
  context->id = ++g_last_context;
  context->usage = 1;
  context->active.store(false, std::memory_order_relaxed);
  context->flags.store(0, std::memory_order_relaxed);
  context->handle = here.handles().mint(HandleKind::kContext, 0, context);
  if (context->handle != 0) return context;
  g_contexts.give_back(context);
  return nullptr;
}

void begin_end_of_context(const EntryContext&, Context& context) {
  end_captures_of_context(context.handle);
  driver_abi::drop_context_storage(as<CUcontext>(context.handle));
}

void end_context(const EntryContext& here, Context& context) {
  if (context.active.exchange(false, std::memory_order_acq_rel)) {
    count_context(context.server_ordinal, false);
  }
  forget_all_answers();
  modules::end_of_context(here, context.handle);
  here.handles().retire_context(context.handle, &retired, nullptr);
  // Frees host memory of the context too, unless copies are still to write or read it.
  const bool writes_outstanding = here.session().host_write_outstanding();
  const std::vector<MemoryRange> ranges = take_ranges_of_context(context.handle);
  std::size_t reached = 0;
  bool used = writes_outstanding;
  for (const MemoryRange& range : ranges) {
    if (range.reached) ++reached;
    // Only the driver knows whether its pool still counts the memory.
    if (range.kind == MemoryKind::kPool && range.owner == 0) stop_keeping_frees(here);
    if (range.kind == MemoryKind::kManaged) managed_advice().remove(range.base);
    const ByteView memory = byte_view(reinterpret_cast<const void*>(range.base), range.bytes);
    const bool read = (range.on_host() || range.in_arena) && here.session().reads(memory);
    used = used || (read && range.in_arena);
    if (range.on_host() && !read) here.session().take_back(memory);
    if (!writes_outstanding && !read) free_host_range(range);
    if (end_sharing(here, range)) here.session().unshare_memory();
  }
  end_arena_of_context(here, context.handle, reached, used);
  here.session().forget_work_of(context.handle);
  end_windowed_ranges(here, context, ranges);
  if (context.primary) return;
  here.handles().retire(context.handle);
  g_contexts.give_back(&context);
}

}  // namespace gpurun::client::interpose

namespace gpurun::client::interpose::custom {

CUresult cuCtxCreate_v2(CUcontext* out, unsigned flags, CUdevice ordinal) {
  return create(out, flags, ordinal, nullptr, 0);
}

CUresult cuCtxCreate_v3(CUcontext* out, CUexecAffinityParam* affinities, int affinity_count,
                        unsigned flags, CUdevice ordinal) {
  if (affinity_count < 0 || (affinity_count != 0 && affinities == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return create(out, flags, ordinal, affinities, affinity_count);
}

CUresult cuCtxCreate_v4(CUcontext* out, CUctxCreateParams* parameters, unsigned flags,
                        CUdevice ordinal) {
  if (parameters == nullptr) return create(out, flags, ordinal, nullptr, 0);
  // Sharing with a graphics interface of this machine is not possible.
  if (parameters->cigParams != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return custom::cuCtxCreate_v3(out, parameters->execAffinityParams,
                                parameters->numExecAffinityParams, flags, ordinal);
}

CUresult cuCtxDestroy_v2(CUcontext given) {
  EntryContext here;
  if (const int result = here.enter(); result != 0) return cuda(result);
  Context* context = given == nullptr ? nullptr : find_context(*here.process, handle_of(given));
  if (context == nullptr || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  begin_end_of_context(here, *context);
  const Handle handle = context->handle;
  here.session().forget_lost(handle);  // A lost context can be ended too.
  CallSite site = here.site();
  site.context = handle;
  void* const arguments[] = {static_cast<void*>(&given), nullptr};
  int own = 0;
  int result =
      call_row(here, opcode::cuCtxDestroy_v2, site, std::span<const Handle>(), arguments, &own);
  // Nor is the end at fault if the context was lost meanwhile.
  if (own == 0 && here.session().health(0) == 0 && here.session().health(handle) != 0) result = 0;
  // This thread has it current no more. On other threads the context is reported as destroyed.
  if (here.lane->context() == handle) here.lane->pop_context();
  end_context(here, *context);
  return cuda(result);
}

CUresult cuCtxAttach(CUcontext* out, unsigned flags) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!here.context->primary) here.context->usage.fetch_add(1);
  *out = as<CUcontext>(here.context->handle);
  return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext given) {
  EntryContext here;
  if (const int result = here.enter(); result != 0) return cuda(result);
  Context* context = given == nullptr ? nullptr : find_context(*here.process, handle_of(given));
  const bool current = context != nullptr && context->handle == here.lane->context();
  if (!current || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  return context->usage.fetch_sub(1) > 1 ? CUDA_SUCCESS : custom::cuCtxDestroy_v2(given);
}

CUresult cuCtxGetApiVersion(CUcontext given, unsigned* version) {
  EntryContext here;
  if (const int result = here.enter(); result != 0) return cuda(result);
  Context* context = nullptr;
  if (const int result = named_context(here, given, &context); result != 0) return cuda(result);
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  constexpr unsigned kApiOfContexts = 3020;  // cuCtxCreate_v2 and later (manual, the call's note).
  *version = kApiOfContexts;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* out) {
  EntryContext here;
  if (const int result = here.enter(); result != 0) return cuda(result);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = as<CUcontext>(here.lane->context());
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext given) {
  EntryContext here;
  if (const int result = here.enter(); result != 0) return cuda(result);
  if (given != nullptr && find_context(*here.process, handle_of(given)) == nullptr) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  here.lane->set_context(handle_of(given));
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext given) {
  EntryContext here;
  if (const int result = here.enter(); result != 0) return cuda(result);
  if (given == nullptr || find_context(*here.process, handle_of(given)) == nullptr) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  here.lane->push_context(handle_of(given));
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext* out) {
  EntryContext here;
  if (const int result = here.enter(); result != 0) return cuda(result);
  if (here.lane->context() == 0) return CUDA_ERROR_INVALID_CONTEXT;
  const Handle popped = here.lane->pop_context();
  if (out != nullptr) *out = as<CUcontext>(popped);
  return CUDA_SUCCESS;
}

// NULL means the current context. Returns 201 without one (measured: NCCL breaks on an invented
// device).
CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext given) {
  EntryContext here;
  if (const int result = here.enter(); result != 0) return cuda(result);
  Context* context = nullptr;
  if (const int result = named_context(here, given, &context); result != 0) return cuda(result);
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = context->ordinal;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) { return custom::cuCtxGetDevice_v2(device, nullptr); }

CUresult cuCtxGetFlags(unsigned* flags) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = here.context->flags.load(std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned flags) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  if (!driver_abi::is_context_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  here.context->flags.store(flags, std::memory_order_relaxed);
  return cuda(post_row(here, opcode::cuCtxSetFlags, here.site(), {}, flags));
}

CUresult cuCtxGetId(CUcontext given, unsigned long long* id) {
  EntryContext here;
  if (const int result = here.enter(); result != 0) return cuda(result);
  Context* context = nullptr;
  if (const int result = named_context(here, given, &context); result != 0) return cuda(result);
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = context->id;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  const Device* device = here.devices().device(here.context->ordinal);
  if (least != nullptr) *least = driver_abi::kLeastPriority;
  if (greatest != nullptr) {
    *greatest = device->attribute(CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED) != 0
                    ? driver_abi::kGreatestPriority
                    : driver_abi::kLeastPriority;
  }
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  if (const int result = refuse_context_wait(here.context->handle); result != 0)
    return cuda(result);
  return cuda(wait_row(here, opcode::cuCtxSynchronize, here.site(), Waits::kForContext));
}

CUresult cuCtxSynchronize_v2(CUcontext given) {
  if (given == nullptr) return custom::cuCtxSynchronize();
  EntryContext here;
  if (const int result = here.enter(); result != 0) return cuda(result);
  here.context = find_context(*here.process, handle_of(given));
  if (here.context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!here.context->active.load(std::memory_order_acquire)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (const int result = refuse_context_wait(here.context->handle); result != 0)
    return cuda(result);
  // The site names the context: the worker makes it current.
  return cuda(wait_row(here, opcode::cuCtxSynchronize, here.site(), Waits::kForContext));
}

}  // namespace gpurun::client::interpose::custom
