// Runs a launched kernel on its device's engine and reports how it ended.
#include "server/emulated/objects/launch.h"

#include "server/emulated/objects/device.h"
#include "server/emulated/runtime/context_runtime.h"

namespace gpurun::emulated {

LaunchOperation::LaunchOperation(KernelLaunch launch) : launch_(std::move(launch)) {
  auto* block = reinterpret_cast<const std::byte*>(launch_.parameters.data());
  for (const KernelParameter& parameter : launch_.function->attributes().parameters) {
    pointers_.push_back(const_cast<std::byte*>(block + parameter.offset));
  }
}

CUresult LaunchOperation::run(Context& context) {
  Engine* const engine = context.device().engine();
  if (engine == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const KernelAttributes& attributes = launch_.function->attributes();
  const auto runtime = context.runtime();
  LaunchRequest request;
  request.function = launch_.code.function;
  request.name = launch_.function->name();
  request.grid = launch_.grid;
  request.block = launch_.block;
  request.cluster = launch_.cluster;
  request.static_shared_bytes = attributes.static_shared_bytes;
  request.dynamic_shared_bytes = launch_.dynamic_shared_bytes;
  request.stack_bytes = launch_.code.stack_bytes;
  if (launch_.code.recursive) {
    request.stack_bytes += static_cast<std::uint32_t>(context.limits[CU_LIMIT_STACK_SIZE].load());
  }
  request.needs_fibers = launch_.code.needs_fibers;
  request.cooperative = launch_.cooperative;
  request.params = launch_.parameters.data();
  request.param_bytes = attributes.param_bytes;
  request.context = runtime.get();
  return static_cast<CUresult>(engine->run(request).code);  // The engine has said what failed.
}

}  // namespace gpurun::emulated
