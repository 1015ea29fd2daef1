// Execution of a launched kernel on its device's engine, and of the kernels that it launches. It
// reports how they ended.
#include "emulated/objects/launch.h"

#include <algorithm>

#include "emulated/objects/device.h"
#include "emulated/objects/grid_runtime.h"
#include "emulated/objects/kernel_log.h"
#include "emulated/runtime/context_runtime.h"

namespace gpurun::emulated {

LaunchOperation::LaunchOperation(KernelLaunch launch) : launch_(std::move(launch)) {}

void** LaunchOperation::parameter_pointers() const {
  std::call_once(pointers_made_, [this] {
    auto* block = reinterpret_cast<const std::byte*>(launch_.parameters.data());
    for (const KernelParameter& parameter : launch_.function->attributes().parameters) {
      pointers_.push_back(const_cast<std::byte*>(block + parameter.offset));
    }
  });
  return pointers_.empty() ? nullptr : pointers_.data();
}

namespace {

LaunchRequest request_for(const KernelLaunch& launch, const Context& context) {
  const KernelAttributes& attributes = launch.function->attributes();
  LaunchRequest request;
  const ThreadedCode& code = launch.code.threaded();
  request.function = code.function;
  request.name = launch.function->name();
  request.grid = launch.grid;
  request.block = launch.block;
  request.cluster = launch.cluster;
  request.static_shared_bytes = attributes.static_shared_bytes;
  request.dynamic_shared_bytes = launch.dynamic_shared_bytes;
  request.stack_bytes = code.stack_bytes;
  if (launch.code.recursive) {
    request.stack_bytes += static_cast<std::uint32_t>(context.limits[CU_LIMIT_STACK_SIZE].load());
  }
  request.needs_fibers = code.needs_fibers;
  request.cooperative = launch.cooperative;
  const FastForm::Code* const fast =
      launch.code.fast == nullptr ? nullptr : launch.code.fast->code();
  if (launch.blocks_are_alone() && fast != nullptr) {
    request.regions = fast->program;
    request.stack_bytes = std::max(request.stack_bytes, fast->stack_bytes);
  }
  request.params = launch.parameters.data();
  request.param_bytes = attributes.param_bytes;
  return request;
}

driver_abi::KernelRun described(Context& context, const KernelLaunch& launch, unsigned level,
                                std::uint64_t begin, int code) {
  driver_abi::KernelRun run{};
  run.name = launch.function->name().c_str();
  run.device = context.device().ordinal();
  run.level = level;
  run.begin_ns = begin;
  run.result = code;
  const Extent* const from[] = {&launch.grid, &launch.block};
  unsigned* const to[] = {run.grid, run.block};
  for (int i = 0; i < 2; ++i) {
    to[i][0] = from[i]->x;
    to[i][1] = from[i]->y;
    to[i][2] = from[i]->z;
  }
  return run;
}

// Runs one grid, and pushes its launches onto `waiting`.
CUresult run_grid(Context& context, ContextRuntime& runtime, Engine& engine,
                  const KernelLaunch& launch, unsigned level, GridFamily& family,
                  std::vector<ChildLaunch>* waiting) {
  GridRuntime grid_runtime(context, runtime, launch.module, level);
  LaunchRequest request = request_for(launch, context);
  request.context = &runtime;
  request.device_runtime = &grid_runtime;
  request.family = &family;
  const bool logged = kernel_log::wanted();
  const std::uint64_t begin = logged ? kernel_log::now() : 0;
  const bool timed = request.regions == nullptr && launch.code.fast != nullptr;
  const auto start =
      timed ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point();
  const int code = engine.run(request).code;  // The engine has logged what failed.
  if (timed) {
    launch.code.fast->ran_without(std::chrono::steady_clock::now() - start, launch.block.x);
  }
  if (logged) kernel_log::ended(described(context, launch, level, begin, code));
  grid_runtime.take_launches(waiting);
  return static_cast<CUresult>(code);
}

}  // namespace

// A grid is complete when everything that it launched is complete, recursively. Then its tail
// launches come. So the waiting grids are a stack: the descendants of one grid run before the grids
// that were launched after it.
CUresult LaunchOperation::run(Context& context) {
  Engine* const engine = context.device().engine();
  if (engine == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto runtime = context.runtime();
  GridFamily family{launch_.function->name(), std::chrono::steady_clock::now(), 0, 0};
  std::vector<ChildLaunch> waiting;
  CUresult result = run_grid(context, *runtime, *engine, launch_, 0, family, &waiting);
  while (result == CUDA_SUCCESS && !waiting.empty()) {
    ChildLaunch child = std::move(waiting.back());
    waiting.pop_back();
    // The error is of another stream. Engine and queue are being emptied.
    result = context.sticky_error();
    if (result == CUDA_SUCCESS) {
      result = child.launch.function->code(*child.launch.module, child.launch.threads(),
                                           &child.launch.code);
    }
    if (result != CUDA_SUCCESS) break;
    ++family.launched;
    result = run_grid(context, *runtime, *engine, child.launch, child.level, family, &waiting);
  }
  return result;
}

}  // namespace gpurun::emulated
