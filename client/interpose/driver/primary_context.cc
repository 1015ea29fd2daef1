// Primary contexts: retains are counted here. The worker learns only of the first and the last.
#include "client/interpose/driver/primary_context.h"

#include <pthread.h>

#include "client/interpose/custom.h"
#include "client/interpose/memory/used_memory.h"
#include "driver_abi/semantics/object_flags.h"

namespace gpurun::client::interpose {
namespace {

constexpr int kDevicesMax = 64;

struct Primary {
  // A destructor of a library's value may call back into this file.
  pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
  Context* context = nullptr;
  unsigned retains = 0;
  bool ever_active = false;
};

constinit Primary g_primaries[kDevicesMax];

class Lock {
 public:
  explicit Lock(Primary& primary) : primary_(primary) { pthread_mutex_lock(&primary_.mutex); }
  ~Lock() { pthread_mutex_unlock(&primary_.mutex); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Primary& primary_;
};

// Enters the call. Returns 0 and the device's entry, or the call's result.
int enter_device(EntryContext& here, CUdevice ordinal, Primary** primary) {
  if (const int result = here.enter(); result != 0) return result;
  if (here.devices().device(ordinal) == nullptr || ordinal >= kDevicesMax) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  *primary = &g_primaries[ordinal];
  return 0;
}

int make(const EntryContext& here, int ordinal, Primary& primary) {
  if (primary.context == nullptr) primary.context = new_context(here, ordinal, true);
  return primary.context == nullptr ? int{CUDA_ERROR_OUT_OF_MEMORY} : 0;
}

// The worker creates the driver's context, which the handle names from now on.
int activate(const EntryContext& here, Primary& primary) {
  CUcontext placed = nullptr;
  CUcontext* const out = &placed;
  const int device = primary.context->server_ordinal;
  CallSite site;
  int result = 0;
  if (!primary.ever_active) {
    site.order = protocol::Order::kImmediate;  // It affects no queued work.
    result = post_row(here, opcode::cuDevicePrimaryCtxRetain, site, {primary.context->handle}, out,
                      device);
  } else {
    // Must follow the release of the context's last life.
    result = call_row(here, opcode::cuDevicePrimaryCtxRetain, site, {primary.context->handle}, out,
                      device);
  }
  if (result != 0) return result;
  if (primary.ever_active) here.session().forget_lost(primary.context->handle);
  primary.ever_active = true;
  primary.context->active.store(true, std::memory_order_release);
  count_context(primary.context->server_ordinal, true);
  return 0;
}

// Ends the worker's context once everything in it is done. The call waits for that, even when the
// program ends with it: the reply brings the last output of kernels.
int deactivate(const EntryContext& here, Primary& primary) {
  begin_end_of_context(here, *primary.context);
  CallSite site;
  site.order = protocol::Order::kOrderedHost;
  const int device = primary.context->server_ordinal;
  const int result = call_row(here, opcode::cuDevicePrimaryCtxRelease_v2, site, {}, device);
  end_context(here, *primary.context);
  return result;
}

bool is_active(const Primary& primary) {
  return primary.context != nullptr && primary.context->active.load(std::memory_order_acquire);
}

}  // namespace

int primary_context(const EntryContext& here, int ordinal, Context** context) {
  if (here.devices().device(ordinal) == nullptr || ordinal >= kDevicesMax) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  Primary& primary = g_primaries[ordinal];
  const Lock lock(primary);
  const int result = make(here, ordinal, primary);
  *context = primary.context;
  return result;
}

namespace custom {

CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice ordinal) {
  EntryContext here;
  Primary* primary = nullptr;
  if (const int result = enter_device(here, ordinal, &primary); result != 0) return cuda(result);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(*primary);
  if (const int result = make(here, ordinal, *primary); result != 0) return cuda(result);
  if (!is_active(*primary)) {
    if (const int result = activate(here, *primary); result != 0) return cuda(result);
  }
  ++primary->retains;
  *out = as<CUcontext>(primary->context->handle);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
  EntryContext here;
  Primary* primary = nullptr;
  if (const int result = enter_device(here, ordinal, &primary); result != 0) return cuda(result);
  const Lock lock(*primary);
  if (primary->retains == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--primary->retains != 0 || !is_active(*primary)) return CUDA_SUCCESS;
  return cuda(deactivate(here, *primary));
}

// Destroys everything in the context. Each retain must still be released (manual).
CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal) {
  EntryContext here;
  Primary* primary = nullptr;
  if (const int result = enter_device(here, ordinal, &primary); result != 0) return cuda(result);
  const Lock lock(*primary);
  if (!is_active(*primary)) return CUDA_SUCCESS;
  // The worker retains it once, so its release destroys the context, as a reset does. The context
  // cannot be used before it is retained again.
  return cuda(deactivate(here, *primary));
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned flags) {
  EntryContext here;
  Primary* primary = nullptr;
  if (const int result = enter_device(here, ordinal, &primary); result != 0) return cuda(result);
  if (!driver_abi::is_context_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(*primary);
  if (const int result = make(here, ordinal, *primary); result != 0) return cuda(result);
  primary->context->flags.store(flags, std::memory_order_relaxed);
  CallSite site;
  site.order = protocol::Order::kImmediate;  // Before a retain that the program makes next.
  return cuda(post_row(here, opcode::cuDevicePrimaryCtxSetFlags_v2, site, {},
                       primary->context->server_ordinal, flags));
}

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned* flags, int* active) {
  EntryContext here;
  Primary* primary = nullptr;
  if (const int result = enter_device(here, ordinal, &primary); result != 0) return cuda(result);
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(*primary);
  *flags = primary->context == nullptr ? 0 : primary->context->flags.load();
  *active = is_active(*primary) ? 1 : 0;
  return CUDA_SUCCESS;
}

}  // namespace custom
}  // namespace gpurun::client::interpose
