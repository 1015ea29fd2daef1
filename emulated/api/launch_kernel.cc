// Launches: the checks that CUDA makes at the call, and the path into the stream.
#include "emulated/api/launch_kernel.h"

#include <cstdlib>
#include <cstring>

#include "base/log.h"
#include "driver_abi/semantics/clusters.h"
#include "driver_abi/semantics/launch_attributes.h"
#include "emulated/api.h"
#include "emulated/objects/event.h"
#include "emulated/objects/launch_limits.h"
#include "emulated/settings.h"

namespace gpurun::emulated {
namespace {

constexpr unsigned kLaunchAttributesMax = 64;

CUresult check_event(CUevent handle) {
  return handles().find<Event>(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult read_attributes(const LaunchCall& call, KernelLaunch* launch, LaunchEvents* events) {
  if (call.attribute_count > kLaunchAttributesMax) return CUDA_ERROR_INVALID_VALUE;
  if (call.attribute_count != 0 && call.attributes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < call.attribute_count; ++i) {
    const CUlaunchAttributeValue& value = call.attributes[i].value;
    const auto id = static_cast<std::uint32_t>(call.attributes[i].id);
    switch (driver_abi::launch_attribute(id).use) {
      case driver_abi::LaunchAttributeUse::kRequest:
        if (id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
          launch->cooperative = launch->cooperative || value.cooperative != 0;
        } else {
          launch->cluster = {value.clusterDim.x, value.clusterDim.y, value.clusterDim.z};
        }
        break;
      case driver_abi::LaunchAttributeUse::kEvent:
        if (id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) {
          GPURUN_TRY(check_event(value.programmaticEvent.event));
          events->programmatic = value.programmaticEvent.event;
        } else {
          GPURUN_TRY(check_event(value.launchCompletionEvent.event));
          events->completion = value.launchCompletionEvent.event;
        }
        break;
      case driver_abi::LaunchAttributeUse::kDeviceHandle:
        if (value.deviceUpdatableKernelNode.deviceUpdatable != 0) return CUDA_ERROR_NOT_SUPPORTED;
        break;
      case driver_abi::LaunchAttributeUse::kIgnored:
      case driver_abi::LaunchAttributeUse::kHint:
        break;
      case driver_abi::LaunchAttributeUse::kUnknown:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

bool is_unset(const Extent& extent) { return extent.x == 0 && extent.y == 0 && extent.z == 0; }

CUresult settle_cluster(KernelLaunch* launch) {
  const KernelAttributes& attributes = launch->function->attributes();
  const FunctionSettings& settings = launch->function->settings();
  const auto& required = attributes.required_cluster;
  Extent& cluster = launch->cluster;
  if (is_unset(cluster)) {
    cluster = {static_cast<unsigned>(settings.cluster[0].load()),
               static_cast<unsigned>(settings.cluster[1].load()),
               static_cast<unsigned>(settings.cluster[2].load())};
  }
  if (required[0] != 0) {
    if (is_unset(cluster)) cluster = {required[0], required[1], required[2]};
    if (cluster.x != required[0] || cluster.y != required[1] || cluster.z != required[2]) {
      return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    }
  }
  if (is_unset(cluster)) cluster = {1, 1, 1};
  const std::uint32_t blocks_max = settings.non_portable_cluster != 0
                                       ? driver_abi::kClusterBlocksMax
                                       : driver_abi::kPortableClusterBlocksMax;
  const Extent& grid = launch->grid;
  GPURUN_TRY(driver_abi::check_cluster({cluster.x, cluster.y, cluster.z}, {grid.x, grid.y, grid.z},
                                       blocks_max));
  if (cluster.count() == 1) return CUDA_SUCCESS;
  // For compiled code a cluster is one block (codegen/cluster.cc). The kernel would run with wrong
  // results.
  GPURUN_LOG(kWarning,
             "emulated device: kernel %s wants clusters of %ux%ux%u blocks; a cluster of more than "
             "one block is not supported",
             launch->function->name().c_str(), cluster.x, cluster.y, cluster.z);
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult check_resources(const KernelLaunch& launch) {
  const KernelAttributes& attributes = launch.function->attributes();
  const auto& required = attributes.required_block;
  const Extent& block = launch.block;
  if (required[0] != 0 &&
      (block.x != required[0] || block.y != required[1] || block.z != required[2])) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::uint32_t dynamic_max = launch.function->dynamic_shared_bytes_max();
  driver_abi::LaunchLimits limits;
  limits.kernel_threads = static_cast<int>(attributes.max_threads);
  limits.dynamic_shared_bytes = static_cast<int>(dynamic_max);
  limits.dynamic_shared_known = true;
  const driver_abi::LaunchShape shape = shape_of(launch.grid, block, launch.dynamic_shared_bytes);
  GPURUN_TRY(driver_abi::check_launch(limits, shape));
  const bool fits = !launch.cooperative ||
                    driver_abi::holds_whole_grid(occupancy_of_device(),
                                                 occupancy_of(attributes, dynamic_max), shape);
  return fits ? CUDA_SUCCESS : CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
}

// The list is {name, value}* ended by 0 (manual, cuLaunchKernel, parameter `extra`).
CUresult find_buffer(void** extra, const void** buffer, std::size_t* bytes) {
  constexpr int kPairsMax = 16;
  for (int pair = 0; pair < kPairsMax; ++pair, extra += 2) {
    if (extra[0] == CU_LAUNCH_PARAM_END) return CUDA_SUCCESS;
    if (extra[1] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      *buffer = extra[1];
    } else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      *bytes = *static_cast<std::size_t*>(extra[1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult copy_parameters(const LaunchCall& call, KernelLaunch* launch) {
  const KernelAttributes& attributes = launch->function->attributes();
  launch->parameters.resize((attributes.param_bytes + 15) / 16);
  auto* block = reinterpret_cast<std::byte*>(launch->parameters.data());
  if (call.parameters != nullptr && call.extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (call.extra != nullptr) {
    const void* buffer = nullptr;
    std::size_t bytes = 0;
    GPURUN_TRY(find_buffer(call.extra, &buffer, &bytes));
    if (attributes.param_bytes == 0) return CUDA_SUCCESS;
    // The last parameter may end before the padding of the program's structure does. A block may
    // also end before the parameters do: NCCL leaves out the rest of a large one. That is 0 here.
    if (buffer == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(block, buffer, std::min<std::size_t>(bytes, attributes.param_bytes));
    return CUDA_SUCCESS;
  }
  if (attributes.parameters.empty()) return CUDA_SUCCESS;
  if (call.parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < attributes.parameters.size(); ++i) {
    const KernelParameter& parameter = attributes.parameters[i];
    if (call.parameters[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(block + parameter.offset, call.parameters[i], parameter.bytes);
  }
  return CUDA_SUCCESS;
}

// With CUDA_LAUNCH_BLOCKING launches are synchronous (CUDA Programming Guide, "Environment
// Variables").
bool launches_wait() {
  static const bool wait = [] {
    const char* const value = std::getenv("CUDA_LAUNCH_BLOCKING");
    return value != nullptr && *value != '\0' && std::strcmp(value, "0") != 0;
  }();
  return wait;
}

CUresult launch_kernel(CUstream stream_handle, const LaunchCall& call) {
  GPURUN_ENTER(context);
  const StreamPtr stream = find_stream(context, stream_handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  KernelLaunch launch;
  LaunchEvents events;
  GPURUN_TRY(prepare_launch(stream->shared_context(), call, &launch, &events));
  GPURUN_TRY(submit(context, stream, std::make_shared<LaunchOperation>(std::move(launch))));
  // Both events may complete later than the program asks, when the kernel is complete.
  for (const CUevent handle : {events.programmatic, events.completion}) {
    if (handle == nullptr) continue;
    const auto event = handles().find<Event>(handle);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    GPURUN_TRY(record_event(context, stream, event));
  }
  if (!launches_wait() || stream->capture() != nullptr) return CUDA_SUCCESS;
  stream->wait_for(stream->position());
  context->flush_output();
  return context->sticky_error();
}

}  // namespace

CUresult apply_launch_attribute(const CUlaunchAttribute& attribute, KernelLaunch* launch) {
  LaunchCall call;
  LaunchEvents events;
  call.attributes = &attribute;
  call.attribute_count = 1;
  if (attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) launch->cooperative = false;
  GPURUN_TRY(read_attributes(call, launch, &events));
  GPURUN_TRY(settle_cluster(launch));
  return check_resources(*launch);
}

CUresult prepare_launch(const ContextPtr& context, const LaunchCall& call, KernelLaunch* launch,
                        LaunchEvents* events) {
  GPURUN_TRY(find_function(context, call.function, &launch->function));
  launch->module = launch->function->module();
  if (launch->module == nullptr || launch->module->context() != context) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  launch->grid = {call.grid[0], call.grid[1], call.grid[2]};
  launch->block = {call.block[0], call.block[1], call.block[2]};
  if (!extents_allowed(launch->grid, launch->block)) return CUDA_ERROR_INVALID_VALUE;
  // cuda.h, CU_LAUNCH_KERNEL_REQUIRED_BLOCK_DIM: a block of one thread means the required block.
  const KernelAttributes& attributes = launch->function->attributes();
  const auto& required = attributes.required_block;
  if (attributes.of_tiles && required[0] != 0 && launch->block.count() == 1) {
    launch->block = {required[0], required[1], required[2]};
  }
  launch->cluster = {0, 0, 0};
  launch->dynamic_shared_bytes = call.dynamic_shared_bytes;
  launch->cooperative = call.cooperative;
  GPURUN_TRY(read_attributes(call, launch, events));
  GPURUN_TRY(settle_cluster(launch));
  GPURUN_TRY(check_resources(*launch));
  GPURUN_TRY(copy_parameters(call, launch));
  return launch->function->code(*launch->module, launch->threads(), &launch->code);
}

}  // namespace gpurun::emulated

namespace gpurun::emulated::api {

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                        void** parameters, void** extra) {
  LaunchCall call;
  call.function = function;
  call.grid[0] = grid_x, call.grid[1] = grid_y, call.grid[2] = grid_z;
  call.block[0] = block_x, call.block[1] = block_y, call.block[2] = block_z;
  call.dynamic_shared_bytes = shared_bytes;
  call.parameters = parameters;
  call.extra = extra;
  return launch_kernel(stream, call);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                   void** parameters) {
  LaunchCall call;
  call.function = function;
  call.grid[0] = grid_x, call.grid[1] = grid_y, call.grid[2] = grid_z;
  call.block[0] = block_x, call.block[1] = block_y, call.block[2] = block_z;
  call.dynamic_shared_bytes = shared_bytes;
  call.parameters = parameters;
  call.cooperative = true;
  return launch_kernel(stream, call);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters,
                          void** extra) {
  GPURUN_ENTER_DRIVER();
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  LaunchCall call;
  call.function = function;
  call.grid[0] = config->gridDimX, call.grid[1] = config->gridDimY, call.grid[2] = config->gridDimZ;
  call.block[0] = config->blockDimX, call.block[1] = config->blockDimY;
  call.block[2] = config->blockDimZ;
  call.dynamic_shared_bytes = config->sharedMemBytes;
  call.parameters = parameters;
  call.extra = extra;
  call.attributes = config->attrs;
  call.attribute_count = config->numAttrs;
  return launch_kernel(config->hStream, call);
}

}  // namespace gpurun::emulated::api
