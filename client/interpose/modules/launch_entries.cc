// Launch entries: cuLaunchKernel and similar calls, checked and packed here, and always posted.
#include <cstring>

#include "client/host_memory/access_check.h"
#include "client/interpose/call/stream.h"
#include "client/interpose/capture/capture.h"
#include "client/interpose/capture/stream_argument.h"
#include "client/interpose/custom.h"
#include "client/interpose/memory/kept_frees.h"
#include "client/interpose/modules/host_pointers.h"
#include "client/interpose/modules/launch.h"
#include "client/interpose/modules/objects.h"
#include "client/interpose/modules/occupancy.h"
#include "driver_abi/semantics/launch_attributes.h"

namespace gpurun::client::interpose {

modules::LaunchLimits modules::limits_of(const Device* device, const Function& function) {
  LaunchLimits limits;
  if (device != nullptr) {
    const Device::LaunchBounds& bounds = device->launch_bounds;
    for (unsigned axis = 0; axis < 3; ++axis) {
      limits.grid[axis] = bounds.grid[axis];
      limits.block[axis] = bounds.block[axis];
    }
    limits.device_threads = bounds.threads;
  }
  limits.kernel_threads = function.attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  limits.dynamic_shared_bytes = function.attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  limits.dynamic_shared_known =
      function.info.knows_attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  return limits;
}

namespace {

using modules::Function;
using protocol::LaunchAttribute;
using protocol::LaunchPayload;

// A function of one context does not run in a stream of another (manual, cuLaunchKernel:
// INVALID_HANDLE). A library's kernel belongs to no context.
bool is_of_another_context(const Function& function, const CallSite& site) {
  return site.stream > protocol::kStreamPerThread && function.kind == HandleKind::kFunction &&
         function.context != site.context;
}

// The differences between the launch functions.
struct Launch {
  std::uint16_t opcode;
  CUstream stream;
  const CUlaunchAttribute* attributes = nullptr;
  unsigned attribute_count = 0;
  bool cooperative = false;
};

// All blocks of a cooperative grid must fit on the device at once.
int check_cooperative(const Device* device, const Function& function, const LaunchPayload& launch) {
  if (device == nullptr) return 0;
  return driver_abi::holds_whole_grid(modules::occupancy_of(*device),
                                      modules::occupancy_of(function), modules::shape_of(launch))
             ? 0
             : int{CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE};
}

// Only the worker knows an event that the launch itself records. An allocation in another stream
// may follow that event, and needs what was freed before.
void note_events(const EntryContext& here, const LaunchAttribute* attributes, unsigned count) {
  for (const LaunchAttribute* each = attributes; each != attributes + count; ++each) {
    if (driver_abi::launch_attribute(each->id).use != driver_abi::LaunchAttributeUse::kEvent) {
      continue;
    }
    Handle event = 0;  // The first member of both values (cuda.h, CUlaunchAttributeValue).
    std::memcpy(&event, each->value, sizeof event);
    if (here.check(event, HandleKind::kEvent) != 0) continue;
    here.session().event_recorded_elsewhere(event);
    post_kept_frees(here);
  }
}

CUresult launch(const Launch& call, CUfunction f, LaunchPayload& payload, void** parameters,
                void** extra) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  Function* function = nullptr;
  if (const int result = modules::find_function(here, f, &function); result != 0) {
    return cuda(result);
  }
  Handle stream = 0;
  if (const int result = resolve_stream(here, call.stream, &stream); result != 0)
    return cuda(result);

  const Device* device = here.devices().device(here.context->ordinal);
  CallSite site = here.stream_site(stream);  // A stream implies its context.
  if (is_of_another_context(*function, site)) return CUDA_ERROR_INVALID_HANDLE;
  int result = modules::check_launch(modules::limits_of(device, *function), payload);
  if (result != 0) return cuda(result);
  if (call.cooperative && (result = check_cooperative(device, *function, payload)) != 0) {
    return cuda(result);
  }
  modules::PackedParameters packed;
  if ((result = packed.pack(function->info, parameters, extra)) != 0) return cuda(result);
  modules::look_for_host_pointers(here, function->info, packed.block, site.context);
  LaunchAttribute attributes[protocol::kLaunchAttributesMax];
  unsigned attribute_count = 0;
  if (call.attribute_count != 0) {
    result = modules::pack_attributes(call.attributes, call.attribute_count, attributes,
                                      &attribute_count);
    if (result != 0) return cuda(result);
    note_events(here, attributes, attribute_count);
  }
  if (here.devices().emulated()) {
    result = modules::check_cluster(function->info, function->required_cluster(), payload,
                                    std::span<const LaunchAttribute>(attributes, attribute_count));
    if (result != 0) return cuda(result);
  }
  if (call.cooperative) {
    if (attribute_count == protocol::kLaunchAttributesMax) return CUDA_ERROR_INVALID_VALUE;
    attributes[attribute_count] = {};
    attributes[attribute_count].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attributes[attribute_count++].value[0] = std::byte{1};  // The value is an int.
  }
  payload.function = function->handle;
  payload.parameter_bytes = static_cast<std::uint32_t>(packed.block.size());
  payload.attribute_count = attribute_count;
  payload.layout_hash = packed.layout_hash;

  site.opcode = call.opcode;
  site.form = protocol::Form::kLaunch;
  static constexpr std::byte kPadding[8] = {};
  const std::size_t padding = protocol::launch_attributes_offset(packed.block.size()) -
                              sizeof payload - packed.block.size();
  const ByteView parts[] = {
      bytes_of(payload), packed.block, ByteView(kPadding, padding),
      byte_view(static_cast<const void*>(attributes), attribute_count * sizeof attributes[0])};
  if (AccessCheck* const check = AccessCheck::active(); check != nullptr) {
    check->note_work({site.context, site.stream}, "kernel " + function->info.name);
  }
  const bool waits = here.session().launches_wait() && !is_captured(here, stream);
  if (waits) post_kept_frees(here);  // The program then knows that they are done.
  result = here.session().post(*here.lane, site, std::span<const ByteView>(parts));
  return cuda(result != 0 || !waits ? result : synchronize_stream(here, stream));
}

}  // namespace

namespace custom {

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                        unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                        unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                        void** kernelParams, void** extra) {
  LaunchPayload payload;
  payload.grid[0] = gridDimX, payload.grid[1] = gridDimY, payload.grid[2] = gridDimZ;
  payload.block[0] = blockDimX, payload.block[1] = blockDimY, payload.block[2] = blockDimZ;
  payload.shared_bytes = sharedMemBytes;
  return launch({opcode::cuLaunchKernel, hStream}, f, payload, kernelParams, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                   unsigned int gridDimZ, unsigned int blockDimX,
                                   unsigned int blockDimY, unsigned int blockDimZ,
                                   unsigned int sharedMemBytes, CUstream hStream,
                                   void** kernelParams) {
  LaunchPayload payload;
  payload.grid[0] = gridDimX, payload.grid[1] = gridDimY, payload.grid[2] = gridDimZ;
  payload.block[0] = blockDimX, payload.block[1] = blockDimY, payload.block[2] = blockDimZ;
  payload.shared_bytes = sharedMemBytes;
  const Launch call{opcode::cuLaunchCooperativeKernel, hStream, nullptr, 0, true};
  return launch(call, f, payload, kernelParams, nullptr);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
                          void** extra) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  LaunchPayload payload;
  payload.grid[0] = config->gridDimX, payload.grid[1] = config->gridDimY;
  payload.grid[2] = config->gridDimZ;
  payload.block[0] = config->blockDimX, payload.block[1] = config->blockDimY;
  payload.block[2] = config->blockDimZ;
  payload.shared_bytes = config->sharedMemBytes;
  const Launch call{opcode::cuLaunchKernelEx, config->hStream, config->attrs, config->numAttrs,
                    false};
  return launch(call, f, payload, kernelParams, extra);
}

}  // namespace custom
}  // namespace gpurun::client::interpose
