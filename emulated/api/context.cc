// Contexts: creation, the thread's stack of current ones, limits and preferences.
#include "driver_abi/semantics/function_settings.h"
#include "driver_abi/semantics/object_flags.h"
#include "emulated/api/entry.h"
#include "emulated/objects/context_end.h"
#include "emulated/settings.h"

#include <algorithm>

namespace gpurun::emulated::api {
namespace {

// The context that `handle` names, or with nullptr the current one.
CUresult named_or_current(CUcontext handle, ContextPtr* context) {
  GPURUN_ENTER_DRIVER();
  if (handle == nullptr) {
    *context = thread_state().current();
    return *context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
  }
  *context = handles().find<Context>(handle);
  return *context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

CUresult create(CUcontext* out, unsigned int flags, CUdevice ordinal) {
  GPURUN_ENTER_DRIVER();
  if (out == nullptr || !driver_abi::is_context_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  Device* device = device_at(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const auto context = handles().add(std::make_shared<Context>(*device, flags, false));
  thread_state().contexts.push_back(context);
  *out = context->as<CUcontext>();
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuCtxCreate_v2(CUcontext* context, unsigned int flags, CUdevice device) {
  return create(context, flags, device);
}

CUresult cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam*, int count, unsigned int flags,
                        CUdevice device) {
  if (count != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return create(context, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* parameters, unsigned int flags,
                        CUdevice device) {
  if (parameters != nullptr && parameters->numExecAffinityParams != 0) {
    return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  }
  if (parameters != nullptr && parameters->cigParams != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return create(context, flags, device);
}

CUresult cuCtxDestroy_v2(CUcontext handle) {
  GPURUN_ENTER_DRIVER();
  const auto context = handles().find<Context>(handle);
  // The primary context ends only with cuDevicePrimaryCtxRelease or Reset.
  if (context == nullptr || context->is_primary()) return CUDA_ERROR_INVALID_CONTEXT;
  auto& stack = thread_state().contexts;
  end_context(*context);
  handles().remove<Context>(handle);
  if (!stack.empty() && stack.back() == context) stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult cuCtxAttach(CUcontext* out, unsigned int flags) {
  GPURUN_ENTER(context);
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!context->is_primary()) ++context->uses;
  *out = context->as<CUcontext>();
  return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext handle) {
  GPURUN_ENTER_DRIVER();
  const ContextPtr current = thread_state().current();
  const auto context = handles().find<Context>(handle);
  if (context == nullptr || context != current || context->is_primary()) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  return --context->uses > 0 ? CUDA_SUCCESS : api::cuCtxDestroy_v2(handle);
}

CUresult cuCtxGetCurrent(CUcontext* out) {
  GPURUN_ENTER_DRIVER();
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ContextPtr& current = thread_state().current();
  *out = current == nullptr ? nullptr : current->as<CUcontext>();
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext handle) {
  GPURUN_ENTER_DRIVER();
  auto& stack = thread_state().contexts;
  if (handle == nullptr) {
    if (!stack.empty()) stack.pop_back();
    return CUDA_SUCCESS;
  }
  // A primary context may be made current before it is retained. Using it fails until then.
  auto context = handles().find<Context>(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (stack.empty()) {
    stack.push_back(std::move(context));
  } else {
    stack.back() = std::move(context);
  }
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext handle) {
  GPURUN_ENTER_DRIVER();
  auto context = handles().find<Context>(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  thread_state().contexts.push_back(std::move(context));
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext* out) {
  GPURUN_ENTER_DRIVER();
  auto& stack = thread_state().contexts;
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (out != nullptr) *out = stack.back()->as<CUcontext>();
  stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* out) {
  GPURUN_ENTER_DRIVER();
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ContextPtr& current = thread_state().current();
  if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *out = current->device().ordinal();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice* out, CUcontext handle) {
  ContextPtr context;
  GPURUN_TRY(named_or_current(handle, &context));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = context->device().ordinal();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long* id) {
  ContextPtr context;
  GPURUN_TRY(named_or_current(handle, &context));
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = context->id();
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) {
  GPURUN_ENTER(context);
  GPURUN_TRY(check_context_wait(*context));
  return context->synchronize();
}

CUresult cuCtxSynchronize_v2(CUcontext handle) {
  ContextPtr context;
  GPURUN_TRY(named_or_current(handle, &context));
  if (!context->is_active()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  GPURUN_TRY(check_context_wait(*context));
  return context->synchronize();
}

CUresult cuCtxGetFlags(unsigned int* flags) {
  GPURUN_ENTER(context);
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = context->flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags) {
  GPURUN_ENTER(context);
  if (!driver_abi::is_context_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  context->flags = flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned int* version) {
  ContextPtr context;
  GPURUN_TRY(named_or_current(handle, &context));
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = static_cast<unsigned>(settings().driver_version);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t* value, CUlimit limit) {
  GPURUN_ENTER(context);
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto index = static_cast<unsigned>(limit);
  // Contexts shared with graphics do not exist here. cuBLASLt queries this limit, and refuses to
  // multiply when that is an error.
  if (index >= CU_LIMIT_SHMEM_SIZE && index <= CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED) {
    *value = 0;
    return CUDA_SUCCESS;
  }
  if (index > CU_LIMIT_PERSISTING_L2_CACHE_SIZE) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  *value = context->limits[index];
  return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  GPURUN_ENTER(context);
  const auto index = static_cast<unsigned>(limit);
  if (index > CU_LIMIT_PERSISTING_L2_CACHE_SIZE) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  if (limit == CU_LIMIT_STACK_SIZE) value = std::min<size_t>((value + 15) / 16 * 16, 512 << 10);
  if (limit == CU_LIMIT_PERSISTING_L2_CACHE_SIZE) value = 0;
  context->set_limit(limit, value);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  GPURUN_ENTER(context);
  if (least != nullptr) *least = driver_abi::kLeastPriority;
  if (greatest != nullptr) *greatest = driver_abi::kGreatestPriority;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* config) {
  GPURUN_ENTER(context);
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *config = static_cast<CUfunc_cache>(context->cache_config.load());
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
  GPURUN_ENTER(context);
  if (!driver_abi::is_cache_config(config)) return CUDA_ERROR_INVALID_VALUE;
  context->cache_config = config;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig* config) {
  GPURUN_ENTER(context);
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *config = static_cast<CUsharedconfig>(context->shared_config.load());
  return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
  GPURUN_ENTER(context);
  if (!driver_abi::is_shared_config(config)) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;  // Banks are always four bytes wide on devices of capability 5 and above.
}

CUresult cuCtxResetPersistingL2Cache(void) {
  GPURUN_ENTER(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer_handle, unsigned int flags) {
  GPURUN_ENTER(context);
  const auto peer = handles().find<Context>(peer_handle);
  if (peer == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (&peer->device() == &context->device()) return CUDA_ERROR_INVALID_DEVICE;
  return context->enable_peer(*peer) ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer_handle) {
  GPURUN_ENTER(context);
  const auto peer = handles().find<Context>(peer_handle);
  if (peer == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return context->disable_peer(*peer) ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

CUresult cuCtxGetDevResource(CUcontext handle, CUdevResource* resource, CUdevResourceType type) {
  ContextPtr context;
  GPURUN_TRY(named_or_current(handle, &context));
  if (resource == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  *resource = CUdevResource{};
  resource->type = type;
  resource->sm.smCount = static_cast<unsigned>(settings().multiprocessors);
  return CUDA_SUCCESS;
}

}  // namespace gpurun::emulated::api
