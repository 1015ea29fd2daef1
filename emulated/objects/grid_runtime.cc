// Launches from kernels. They are checked as launches from the host are, and kept until their grid
// has ended.
#include "emulated/objects/grid_runtime.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "driver_abi/semantics/launch_limits.h"
#include "emulated/objects/conditional.h"
#include "emulated/objects/device.h"
#include "emulated/objects/launch_limits.h"
#include "emulated/runtime/context_runtime.h"
#include "emulated/settings.h"

namespace gpurun::emulated {
namespace {

using Answer = DeviceRuntime::Answer;

// Streams that need not be created (driver_types.h, cuda_device_runtime_api.h).
constexpr std::uint64_t kNullStream = 0;
constexpr std::uint64_t kLegacyStream = 1;
constexpr std::uint64_t kPerThreadStream = 2;
constexpr std::uint64_t kTailLaunchStream = 3;
constexpr std::uint64_t kFireAndForgetStream = 4;
// The first handle, so that none equals one of those or looks like an address.
constexpr std::uint64_t kHandleFirst = 0x100;

// The only flags that kernels may create streams and events with (Programming Guide, "Streams",
// "Events"): cudaStreamNonBlocking, cudaEventDisableTiming.
constexpr std::uint64_t kStreamFlags = 1;
constexpr std::uint64_t kEventFlags = 2;

// Charge of a buffer besides its bytes.
constexpr std::size_t kBufferBytes = 256;

Answer failed(DeviceError error) { return {error, 0, 0}; }
Answer value(std::uint64_t answer) { return {DeviceError::kNone, 0, answer}; }

Extent extent_at(const std::uint64_t* words) {
  return {static_cast<std::uint32_t>(words[0]), static_cast<std::uint32_t>(words[1]),
          static_cast<std::uint32_t>(words[2])};
}

}  // namespace

GridRuntime::GridRuntime(Context& context, ContextRuntime& runtime,
                         const std::shared_ptr<ContextModule>& module, unsigned level)
    : context_(context),
      runtime_(runtime),
      module_(module),
      level_(level),
      last_handle_(kHandleFirst) {}

Answer GridRuntime::answer(DeviceCall call, const std::uint64_t* arguments) {
  switch (call) {
    case DeviceCall::kGetParameterBuffer:
      return make_buffer(arguments[1], {});
    case DeviceCall::kGetParameterBufferV2:
      return parameter_buffer(arguments);
    case DeviceCall::kLaunchDevice:
      return launch_device(arguments);
    case DeviceCall::kLaunchDeviceV2:
      return launch_buffer(arguments[0], arguments[1]);
    case DeviceCall::kStreamCreate:
      return make_handle(&streams_, arguments[1], kStreamFlags);
    case DeviceCall::kStreamDestroy:
      return drop_handle(&streams_, arguments[0]);
    case DeviceCall::kEventCreate:
      return make_handle(&events_, arguments[1], kEventFlags);
    case DeviceCall::kEventDestroy:
      return drop_handle(&events_, arguments[0]);
    case DeviceCall::kEventRecord:
      return failed(knows_event(arguments[0]) && can_order_events(arguments[1])
                        ? DeviceError::kNone
                        : DeviceError::kInvalidValue);
    case DeviceCall::kStreamWaitEvent:
      return failed(can_order_events(arguments[0]) && knows_event(arguments[1]) && arguments[2] == 0
                        ? DeviceError::kNone
                        : DeviceError::kInvalidValue);
    case DeviceCall::kFuncGetAttribute:
      return function_attribute(arguments[1], arguments[2]);
    case DeviceCall::kDeviceGetAttribute:
      return device_attribute(arguments[1], arguments[2]);
    case DeviceCall::kGetDeviceCount:
      return value(devices().size());
    case DeviceCall::kGetDevice:
      return value(static_cast<std::uint64_t>(context_.device().ordinal()));
    case DeviceCall::kGetLimit:
      if (arguments[1] > CU_LIMIT_PERSISTING_L2_CACHE_SIZE) {
        return failed(DeviceError::kUnsupportedLimit);
      }
      return value(context_.limits[arguments[1]]);
    case DeviceCall::kGetCacheConfig:
      return value(static_cast<std::uint64_t>(context_.cache_config.load()));
    case DeviceCall::kGetSharedMemConfig:
      return value(static_cast<std::uint64_t>(context_.shared_config.load()));
    case DeviceCall::kMaxActiveBlocks:
      return occupancy(arguments);
    case DeviceCall::kGraphSetConditional: {
      // A wrong handle has no effect: the function returns nothing.
      const auto conditional = handles().find<Conditional>(arguments[0]);
      if (conditional != nullptr) conditional->set(static_cast<unsigned>(arguments[1]));
      return failed(DeviceError::kNone);
    }
    case DeviceCall::kSetLastError:
    case DeviceCall::kGetLastError:
      break;
  }
  return failed(DeviceError::kInvalidValue);
}

// ---- Launches

Answer GridRuntime::find_kernel(std::uint64_t address, std::shared_ptr<Function>* function) {
  const CUresult found = module_->function_at(address, function);
  if (found == CUDA_SUCCESS) return {};
  if (found == CUDA_ERROR_INVALID_VALUE) return failed(DeviceError::kInvalidValue);
  // On a GPU its code would exist, so no program checks for such an error.
  return {DeviceError::kInvalidValue, static_cast<int>(found), 0};
}

Answer GridRuntime::make_buffer(std::size_t bytes, Buffer buffer) {
  if (bytes > driver_abi::kKernelParameterBytesMax) return failed(DeviceError::kInvalidValue);
  buffer.bytes = bytes;
  buffer.child.level = level_;
  buffer.child.parameters = runtime_.launches().take_bytes(bytes + kBufferBytes);
  if (!buffer.child.parameters) return failed(DeviceError::kOutOfMemory);
  auto& chunks = buffer.child.launch.parameters;
  chunks.resize(std::max<std::size_t>(1, (bytes + 15) / 16));
  const auto address = reinterpret_cast<std::uint64_t>(chunks.data());
  const std::lock_guard lock(mutex_);
  if (buffers_.size() >= kHandlesMax) return failed(DeviceError::kOutOfMemory);
  buffers_.emplace(address, std::move(buffer));
  return value(address);
}

// The launch reports wrong dimensions, because it has a way to do that.
Answer GridRuntime::parameter_buffer(const std::uint64_t* arguments) {
  Buffer buffer;
  KernelLaunch& launch = buffer.child.launch;
  const Answer found = find_kernel(arguments[0], &launch.function);
  if (found.error != DeviceError::kNone) return found;
  launch.grid = extent_at(arguments + 1);
  launch.block = extent_at(arguments + 4);
  launch.dynamic_shared_bytes = static_cast<std::uint32_t>(arguments[7]);
  buffer.has_kernel = true;
  const std::size_t bytes = launch.function->attributes().param_bytes;
  return make_buffer(bytes, std::move(buffer));
}

Answer GridRuntime::launch_buffer(std::uint64_t address, std::uint64_t stream) {
  ChildLaunch child;
  {
    const std::lock_guard lock(mutex_);
    const auto found = buffers_.find(address);
    if (found == buffers_.end() || !found->second.has_kernel) {
      return failed(DeviceError::kInvalidValue);
    }
    child = std::move(found->second.child);
    buffers_.erase(found);
  }
  return launch(std::move(child), stream);
}

Answer GridRuntime::launch_device(const std::uint64_t* arguments) {
  std::shared_ptr<Function> function;
  const Answer kernel = find_kernel(arguments[0], &function);
  if (kernel.error != DeviceError::kNone) return kernel;
  const std::size_t bytes = function->attributes().param_bytes;
  ChildLaunch child;
  child.level = level_;
  if (arguments[1] != 0 || bytes != 0) {
    const std::lock_guard lock(mutex_);
    const auto found = buffers_.find(arguments[1]);
    if (found == buffers_.end() || found->second.has_kernel || found->second.bytes < bytes) {
      return failed(DeviceError::kInvalidValue);
    }
    child = std::move(found->second.child);
    buffers_.erase(found);
  }
  child.launch.function = std::move(function);
  child.launch.grid = extent_at(arguments + 2);
  child.launch.block = extent_at(arguments + 5);
  child.launch.dynamic_shared_bytes = static_cast<std::uint32_t>(arguments[8]);
  return launch(std::move(child), arguments[9]);
}

// Requests that can never be met are one error, whatever they exceed (driver_types.h,
// cudaErrorInvalidConfiguration).
DeviceError GridRuntime::check(const KernelLaunch& launch) {
  if (!extents_allowed(launch.grid, launch.block)) return DeviceError::kInvalidConfiguration;
  const KernelAttributes& attributes = launch.function->attributes();
  const auto& required = attributes.required_block;
  const Extent& block = launch.block;
  if (required[0] != 0 &&
      (block.x != required[0] || block.y != required[1] || block.z != required[2])) {
    return DeviceError::kInvalidValue;
  }
  if (block.count() > attributes.max_threads) return DeviceError::kOutOfResources;
  if (launch.dynamic_shared_bytes > module_->dynamic_shared_bytes_max(*launch.function)) {
    return DeviceError::kInvalidConfiguration;
  }
  const auto& cluster = attributes.required_cluster;
  if (cluster[0] != 0 && cluster[0] * cluster[1] * cluster[2] != 1) {
    GPURUN_LOG(kWarning,
               "emulated device: kernel %s, launched by a kernel, wants clusters of %ux%ux%u "
               "blocks; a cluster of more than one block is not supported",
               launch.function->name().c_str(), cluster[0], cluster[1], cluster[2]);
    return DeviceError::kInvalidClusterSize;
  }
  return DeviceError::kNone;
}

Answer GridRuntime::launch(ChildLaunch child, std::uint64_t stream) {
  if (const DeviceError error = check(child.launch); error != DeviceError::kNone) {
    return failed(error);
  }
  const Order order = order_of(stream);
  if (order == Order::kNone) return failed(DeviceError::kInvalidValue);
  if (order == Order::kInTurn && ++child.level > kLevelMax) {
    return failed(DeviceError::kMaxDepthExceeded);
  }
  child.launch_counts = runtime_.launches().take_launch();
  if (!child.launch_counts) return failed(DeviceError::kPendingCountExceeded);
  child.launch.module = module_;
  const std::lock_guard lock(mutex_);
  (order == Order::kInTurn ? in_turn_ : at_the_end_).push_back(std::move(child));
  return {};
}

void GridRuntime::take_launches(std::vector<ChildLaunch>* waiting) {
  buffers_.clear();
  for (std::vector<ChildLaunch>* const launches : {&at_the_end_, &in_turn_}) {
    std::move(launches->rbegin(), launches->rend(), std::back_inserter(*waiting));
    launches->clear();
  }
}

// ---- Streams and events

Answer GridRuntime::make_handle(std::set<std::uint64_t>* handles, std::uint64_t flags,
                                std::uint64_t flags_needed) {
  if (flags != flags_needed) return failed(DeviceError::kInvalidValue);
  const std::lock_guard lock(mutex_);
  if (handles->size() >= kHandlesMax) return failed(DeviceError::kOutOfMemory);
  handles->insert(++last_handle_);
  return value(last_handle_);
}

Answer GridRuntime::drop_handle(std::set<std::uint64_t>* handles, std::uint64_t handle) {
  const std::lock_guard lock(mutex_);
  return failed(handles->erase(handle) == 1 ? DeviceError::kNone : DeviceError::kInvalidValue);
}

GridRuntime::Order GridRuntime::order_of(std::uint64_t stream) {
  switch (stream) {
    case kNullStream:
    case kLegacyStream:
    case kPerThreadStream:
    case kFireAndForgetStream:
      return Order::kInTurn;
    case kTailLaunchStream:
      return Order::kAtTheEnd;
    default: {
      const std::lock_guard lock(mutex_);
      return streams_.contains(stream) ? Order::kInTurn : Order::kNone;
    }
  }
}

// The two streams without an order of their own cannot be waited for.
bool GridRuntime::can_order_events(std::uint64_t stream) {
  return stream != kFireAndForgetStream && order_of(stream) == Order::kInTurn;
}

bool GridRuntime::knows_event(std::uint64_t event) {
  const std::lock_guard lock(mutex_);
  return events_.contains(event);
}

// ---- Questions

Answer GridRuntime::function_attribute(std::uint64_t attribute, std::uint64_t address) {
  std::shared_ptr<Function> function;
  const Answer found = find_kernel(address, &function);
  if (found.error != DeviceError::kNone) return found;
  int answer = 0;
  if (!function->attribute(static_cast<CUfunction_attribute>(attribute), &answer)) {
    return failed(DeviceError::kInvalidValue);
  }
  return value(static_cast<std::uint64_t>(answer));
}

Answer GridRuntime::device_attribute(std::uint64_t attribute, std::uint64_t device) {
  const Device* const asked = device_at(static_cast<CUdevice>(device));
  if (asked == nullptr) return failed(DeviceError::kInvalidDevice);
  int answer = 0;
  if (!asked->attribute(static_cast<CUdevice_attribute>(attribute), settings().capability,
                        &answer)) {
    return failed(DeviceError::kInvalidValue);
  }
  return value(static_cast<std::uint64_t>(answer));
}

Answer GridRuntime::occupancy(const std::uint64_t* arguments) {
  std::shared_ptr<Function> function;
  const Answer found = find_kernel(arguments[1], &function);
  if (found.error != DeviceError::kNone) return found;
  if (static_cast<std::int32_t>(arguments[2]) <= 0) return failed(DeviceError::kInvalidValue);
  return value(static_cast<std::uint64_t>(
      resident_blocks(function->attributes(), module_->dynamic_shared_bytes_max(*function),
                      arguments[2], arguments[3])));
}

}  // namespace gpurun::emulated
