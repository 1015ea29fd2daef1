// The state checks before each call, and the path of an operation into a stream.
#include "emulated/api/entry.h"

#include <pthread.h>

#include <atomic>

#include "emulated/objects/capture.h"

namespace gpurun::emulated {
namespace {

enum class Life : int { kFresh, kInitialized, kForked };
std::atomic<Life> life{Life::kFresh};

// The child has none of our threads. CUDA does not work in the child of an initialised parent.
void in_forked_child() {
  if (life.load() == Life::kInitialized) life.store(Life::kForked);
}

}  // namespace

void set_initialized() {
  Life expected = Life::kFresh;
  if (life.compare_exchange_strong(expected, Life::kInitialized)) {
    pthread_atfork(nullptr, nullptr, in_forked_child);
  }
}

CUresult enter_driver() {
  if (life.load(std::memory_order_acquire) != Life::kInitialized) {
    return CUDA_ERROR_NOT_INITIALIZED;
  }
  if (thread_state().in_callback) return CUDA_ERROR_NOT_PERMITTED;
  return CUDA_SUCCESS;
}

CUresult check_not_forked() {
  return life.load(std::memory_order_acquire) == Life::kForked ? CUDA_ERROR_NOT_INITIALIZED
                                                               : CUDA_SUCCESS;
}

CUresult enter_context_even_failed(ContextPtr* context) {
  GPURUN_TRY(enter_driver());
  const ContextPtr& current = thread_state().current();
  if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!current->is_active()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *context = current;
  return CUDA_SUCCESS;
}

CUresult enter_context(ContextPtr* context) {
  GPURUN_TRY(enter_context_even_failed(context));
  const CUresult lost = (*context)->sticky_error();
  // The output printed before the fault is shown before the caller gets the error.
  if (lost != CUDA_SUCCESS) (*context)->flush_output();
  return lost;
}

StreamPtr find_stream(const ContextPtr& context, CUstream handle) {
  ThreadState& thread = thread_state();
  const auto number = reinterpret_cast<std::uintptr_t>(handle);
  if (number == 2 || (number == 0 && thread.per_thread_default_stream)) {
    return thread.default_stream(context);
  }
  if (number == 0 || number == 1) return context->legacy_stream();
  return handles().find<Stream>(handle);
}

CUresult submit(const ContextPtr&, const StreamPtr& stream, OperationPtr operation) {
  GPURUN_TRY(check_stream_use(driver_abi::CaptureFamily::kWork, *stream));
  if (const auto capture = stream->capture()) {
    return capture->add(*stream, std::move(operation));
  }
  return stream->context().issue(stream, std::move(operation));
}

CUresult submit_and_wait(const ContextPtr& context, const StreamPtr& stream,
                         OperationPtr operation) {
  GPURUN_TRY(check_stream_use(driver_abi::CaptureFamily::kWaits, *stream));
  if (context->could_start(*stream)) {
    if (const CUresult result = operation->run(*context)) context->fail(result);
    context->flush_output();
    return context->sticky_error();
  }
  std::uint64_t position = 0;
  GPURUN_TRY(stream->context().issue(stream, std::move(operation), &position));
  stream->wait_for(position);
  context->flush_output();
  return context->sticky_error();
}

}  // namespace gpurun::emulated
