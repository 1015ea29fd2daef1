// Streams: creation, order, host functions, memory operations.
#include <vector>

#include "driver_abi/semantics/launch_attributes.h"
#include "driver_abi/semantics/object_flags.h"
#include "emulated/api.h"
#include "emulated/api/entry.h"
#include "emulated/objects/event.h"
#include "emulated/objects/graph_exec.h"
#include "emulated/objects/host_operation.h"
#include "emulated/objects/memory_operations.h"
#include "emulated/objects/memory_registry.h"
#include "emulated/settings.h"

namespace gpurun::emulated {

OperationPtr make_host_operation(CUhostFn function, void* user_data) {
  return std::make_shared<HostOperation>(function, user_data);
}

}  // namespace gpurun::emulated

namespace gpurun::emulated::api {
namespace {

bool is_stream_attribute(CUstreamAttrID attribute) {
  return driver_abi::check_stream_attribute(static_cast<std::uint32_t>(attribute)) == CUDA_SUCCESS;
}

CUresult memory_operations(CUstream handle, const CUstreamBatchMemOpParams* list,
                           unsigned int count) {
  GPURUN_ENTER(context);
  const StreamPtr stream = find_stream(context, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if ((count != 0 && list == nullptr) || count > driver_abi::kStreamMemoryOperationsMax)
    return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) GPURUN_TRY(check_memory_operation(list[i]));
  if (count == 0) return CUDA_SUCCESS;
  return submit(context, stream,
                std::make_shared<MemoryOperations>(
                    std::vector<CUstreamBatchMemOpParams>(list, list + count)));
}

CUresult one_operation(CUstream stream, CUstreamBatchMemOpType type, CUdeviceptr address,
                       std::uint64_t value, unsigned int flags) {
  CUstreamBatchMemOpParams what{};
  what.waitValue.operation = type;
  what.waitValue.address = address;
  what.waitValue.value64 = value;
  what.waitValue.flags = flags;
  return memory_operations(stream, &what, 1);
}

}  // namespace

CUresult cuStreamCreateWithPriority(CUstream* out, unsigned int flags, int priority) {
  GPURUN_ENTER(context);
  if (out == nullptr || !driver_abi::is_stream_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  const auto stream =
      handles().add(context->create_stream(flags, driver_abi::clamp_priority(priority)));
  context->own(*stream);
  *out = stream->as<CUstream>();
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream* out, unsigned int flags) {
  return api::cuStreamCreateWithPriority(out, flags, 0);
}

// Returns at once. What is queued still runs (manual, cuStreamDestroy).
CUresult cuStreamDestroy_v2(CUstream handle) {
  ContextPtr context;
  GPURUN_TRY(enter_context_even_failed(&context));
  const auto stream = handles().remove<Stream>(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  end_captures_of(*stream);
  stream->context().disown(*stream);
  return context->sticky_error();
}

CUresult cuStreamQuery(CUstream handle) {
  GPURUN_ENTER(context);
  const StreamPtr stream = find_stream(context, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  GPURUN_TRY(check_stream_use(driver_abi::CaptureFamily::kLooks, *stream));
  if (!stream->context().could_start(*stream)) return CUDA_ERROR_NOT_READY;
  return context->sticky_error();
}

CUresult cuStreamSynchronize(CUstream handle) {
  GPURUN_ENTER(context);
  const StreamPtr stream = find_stream(context, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  GPURUN_TRY(check_stream_use(driver_abi::CaptureFamily::kLooks, *stream));
  Context& owner = stream->context();
  if (stream.get() == owner.legacy_stream().get()) {
    // The legacy stream represents all blocking streams, so an empty operation is enqueued after
    // them.
    if (!owner.could_start(*stream)) {
      std::uint64_t position = 0;
      auto nothing = std::make_shared<FunctionOperation>([] { return CUDA_SUCCESS; });
      GPURUN_TRY(owner.issue(stream, std::move(nothing), &position));
      stream->wait_for(position);
    }
  } else {
    stream->wait_for(stream->position());
  }
  owner.flush_output();
  return owner.sticky_error();
}

CUresult cuStreamGetFlags(CUstream handle, unsigned int* flags) {
  GPURUN_ENTER(context);
  const StreamPtr stream = find_stream(context, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = stream->flags();
  return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream handle, int* priority) {
  GPURUN_ENTER(context);
  const StreamPtr stream = find_stream(context, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *priority = stream->priority();
  return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream handle, unsigned long long* id) {
  GPURUN_ENTER(context);
  const StreamPtr stream = find_stream(context, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = stream->id();
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* out) {
  GPURUN_ENTER(context);
  const StreamPtr stream = find_stream(context, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = stream->context().as<CUcontext>();
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext* out, CUgreenCtx* green) {
  if (out == nullptr || green == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GPURUN_TRY(api::cuStreamGetCtx(handle, out));
  *green = nullptr;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetGreenCtx(CUstream handle, CUgreenCtx* green) {
  GPURUN_ENTER(context);
  if (find_stream(context, handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (green == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *green = nullptr;  // No stream here belongs to one.
  return CUDA_SUCCESS;
}

CUresult cuStreamGetDevResource(CUstream handle, CUdevResource* resource, CUdevResourceType type) {
  GPURUN_ENTER(context);
  const StreamPtr stream = find_stream(context, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return api::cuCtxGetDevResource(nullptr, resource, type);  // No stream has less.
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice* device) {
  GPURUN_ENTER(context);
  const StreamPtr stream = find_stream(context, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = stream->context().device().ordinal();
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned int flags) {
  GPURUN_ENTER(context);
  const StreamPtr stream = find_stream(context, handle);
  const auto event = handles().find<Event>(event_handle);
  if (stream == nullptr || event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!driver_abi::is_event_wait_flags(flags, stream->capture() != nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if ((flags & CU_EVENT_WAIT_EXTERNAL) != 0) {
    return submit(context, stream, std::make_shared<GraphEventOperation>(event, false));
  }
  return wait_for_event(context, stream, event);
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* user_data) {
  GPURUN_ENTER(context);
  const StreamPtr stream = find_stream(context, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return submit(context, stream, make_host_operation(function, user_data));
}

CUresult cuLaunchHostFunc_v2(CUstream handle, CUhostFn function, void* user_data,
                             unsigned int wait) {
  // CU_HOST_TASK_BLOCKING, CU_HOST_TASK_SPINWAIT: the way of waiting is ours to choose.
  return wait > 1 ? CUDA_ERROR_INVALID_VALUE : api::cuLaunchHostFunc(handle, function, user_data);
}

CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void* user_data,
                             unsigned int flags) {
  GPURUN_ENTER(context);
  const StreamPtr stream = find_stream(context, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  GPURUN_TRY(check_stream_use(driver_abi::CaptureFamily::kLooks, *stream));
  // Also called after a failure, with its code (manual, cuStreamAddCallback).
  const std::weak_ptr<Context> owner = stream->shared_context();
  auto body = [callback, handle, user_data, owner] {
    const auto alive = owner.lock();
    ThreadState& thread = thread_state();
    thread.in_callback = true;
    callback(handle, alive == nullptr ? CUDA_ERROR_CONTEXT_IS_DESTROYED : alive->sticky_error(),
             user_data);
    thread.in_callback = false;
    return CUDA_SUCCESS;
  };
  return submit(context, stream, std::make_shared<FunctionOperation>(std::move(body), true));
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                unsigned int flags) {
  return one_operation(stream, CU_STREAM_MEM_OP_WAIT_VALUE_32, address, value, flags);
}
CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                unsigned int flags) {
  return one_operation(stream, CU_STREAM_MEM_OP_WAIT_VALUE_64, address, value, flags);
}
CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                 unsigned int flags) {
  return one_operation(stream, CU_STREAM_MEM_OP_WRITE_VALUE_32, address, value, flags);
}
CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                 unsigned int flags) {
  return one_operation(stream, CU_STREAM_MEM_OP_WRITE_VALUE_64, address, value, flags);
}
CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                               CUstreamBatchMemOpParams* operations, unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return memory_operations(stream, operations, count);
}

CUresult cuStreamAttachMemAsync(CUstream handle, CUdeviceptr address, size_t, unsigned int flags) {
  GPURUN_ENTER(context);
  if (find_stream(context, handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST &&
      flags != CU_MEM_ATTACH_SINGLE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto range = memory_registry().find(address);
  if (!range || range->kind != MemoryKind::kManaged) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;  // Host and device see the same pages at all times.
}

CUresult cuStreamGetAttribute(CUstream handle, CUstreamAttrID attribute, CUstreamAttrValue* value) {
  GPURUN_ENTER(context);
  const StreamPtr stream = find_stream(context, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_stream_attribute(attribute)) return CUDA_ERROR_INVALID_VALUE;
  CUstreamAttrValue filled{};
  if (attribute == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY) {
    filled.syncPolicy = CU_SYNC_POLICY_AUTO;
  } else if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
    filled.priority = stream->priority();
  }
  *value = filled;
  return CUDA_SUCCESS;
}

// Hints without effect, because there is no second-level cache to partition.
CUresult cuStreamSetAttribute(CUstream handle, CUstreamAttrID attribute,
                              const CUstreamAttrValue* value) {
  GPURUN_ENTER(context);
  if (find_stream(context, handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return value != nullptr && is_stream_attribute(attribute) ? CUDA_SUCCESS
                                                            : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuStreamCopyAttributes(CUstream destination, CUstream source) {
  GPURUN_ENTER(context);
  if (find_stream(context, destination) == nullptr || find_stream(context, source) == nullptr) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  return CUDA_SUCCESS;
}

}  // namespace gpurun::emulated::api
