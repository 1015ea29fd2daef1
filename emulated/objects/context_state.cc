// The limits of a context, and the effect of its failure.
#include "emulated/objects/context_state.h"

#include "base/log.h"
#include "emulated/engine/engine.h"
#include "emulated/objects/device.h"
#include "emulated/runtime/context_runtime.h"

namespace gpurun::emulated {
namespace {

std::uint64_t next_context_id() {
  static std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

ContextState::ContextState(ObjectKind kind, Device& device)
    : Object(kind), device_(device), id_(next_context_id()) {
  for (auto& limit : limits) limit = 0;
  limits[CU_LIMIT_STACK_SIZE] = 1024;
  limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
  limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
  limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
  limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = LaunchPool::kLaunchesDefault;
  limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 128;
}

void ContextState::fail(CUresult error) {
  int expected = CUDA_SUCCESS;
  if (sticky_error_.compare_exchange_strong(expected, error)) {
    GPURUN_LOG(kInfo, "context %llu failed with error %d", static_cast<unsigned long long>(id()),
               static_cast<int>(error));
    if (Engine* const engine = device_.running_engine()) engine->cancel(runtime().get(), error);
  }
}

std::shared_ptr<ContextRuntime> ContextState::runtime() {
  const std::lock_guard lock(mutex_);
  if (runtime_ == nullptr) {
    runtime_ = std::make_shared<ContextRuntime>();
    runtime_->output().set_limit(limits[CU_LIMIT_PRINTF_FIFO_SIZE]);
    runtime_->heap().set_limit(limits[CU_LIMIT_MALLOC_HEAP_SIZE]);
    runtime_->launches().set_limit(limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT]);
  }
  return runtime_;
}

void ContextState::flush_output() { runtime()->output().flush(); }

void ContextState::set_limit(CUlimit limit, std::size_t value) {
  limits[limit] = value;
  if (limit == CU_LIMIT_PRINTF_FIFO_SIZE) runtime()->output().set_limit(value);
  if (limit == CU_LIMIT_MALLOC_HEAP_SIZE) runtime()->heap().set_limit(value);
  if (limit == CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT) runtime()->launches().set_limit(value);
}

void ContextState::drop_runtime() {
  const std::lock_guard lock(mutex_);
  runtime_.reset();
}

void ContextState::forget_error() {
  sticky_error_ = CUDA_SUCCESS;
  id_ = next_context_id();
}

}  // namespace gpurun::emulated
