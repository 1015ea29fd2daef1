// Calls of the device runtime: they move arguments and results between device memory and
// DeviceRuntime. They access device memory only while they hold nothing, because a wild pointer
// leaves the frame for ever.
#include "emulated/engine/device_calls.h"

#include <algorithm>
#include <cstring>

#include "emulated/engine/block.h"
#include "emulated/engine/engine.h"
#include "emulated/engine/grid.h"

namespace gpurun::emulated {

namespace {

using Answer = DeviceRuntime::Answer;

// func, buffer, grid, block, shared bytes, stream.
constexpr std::size_t kLaunchWords = 10;

// driver_types.h. libcudadevrt itself translates the numbers of the other errors.
constexpr std::uint32_t kCudaErrorInvalidValue = 1;
constexpr std::uint32_t kCudaErrorMemoryAllocation = 2;

Answer ask(ThreadContext* thread, DeviceCall call, const std::uint64_t* arguments) {
  Block& block = *static_cast<Block*>(thread->block->engine);
  DeviceRuntime* const runtime = block.grid().request.device_runtime;
  Answer answer{DeviceError::kInvalidValue, 0, 0};
  if (runtime != nullptr) answer = runtime->answer(call, arguments);
  if (answer.grid_error != 0) {
    block.fail(*static_cast<Fiber*>(thread->engine), answer.grid_error,
               "a kernel that it launches cannot run");
  }
  return answer;
}

// Such a function cannot return an error. It returns null and stores the error.
std::uint64_t buffer(ThreadContext* thread, const Answer& answer) {
  if (answer.error == DeviceError::kNone) return answer.value;
  thread->last_error = answer.error == DeviceError::kOutOfMemory ? kCudaErrorMemoryAllocation
                                                                 : kCudaErrorInvalidValue;
  return 0;
}

std::uint64_t launch(ThreadContext* thread, const std::uint64_t* arguments) {
  std::uint32_t extents[6] = {};
  for (int i = 0; i < 2; ++i) {
    if (arguments[2 + i] == 0) return static_cast<std::uint64_t>(DeviceError::kInvalidValue);
    std::memcpy(extents + 3 * i, reinterpret_cast<const void*>(arguments[2 + i]), 12);
  }
  std::uint64_t words[kLaunchWords] = {arguments[0], arguments[1]};
  std::copy_n(extents, 6, words + 2);
  words[8] = arguments[4];
  words[9] = arguments[5];
  return static_cast<std::uint64_t>(ask(thread, DeviceCall::kLaunchDevice, words).error);
}

// Stores the result at the address in the first argument.
template <class T>
std::uint64_t stored(ThreadContext* thread, DeviceCall call, const std::uint64_t* arguments) {
  if (arguments[0] == 0) return static_cast<std::uint64_t>(DeviceError::kInvalidValue);
  const Answer answer = ask(thread, call, arguments);
  if (answer.error == DeviceError::kNone) {
    const T value = static_cast<T>(answer.value);
    std::memcpy(reinterpret_cast<void*>(arguments[0]), &value, sizeof value);
  }
  return static_cast<std::uint64_t>(answer.error);
}

}  // namespace

std::uint64_t device_call(ThreadContext* thread, std::uint32_t number,
                          const std::uint64_t* arguments) {
  const auto call = static_cast<DeviceCall>(number);
  switch (call) {
    case DeviceCall::kSetLastError:
      return thread->last_error = static_cast<std::uint32_t>(arguments[0]);
    case DeviceCall::kGetLastError:
      return thread->last_error;
    case DeviceCall::kGetParameterBuffer:
    case DeviceCall::kGetParameterBufferV2:
      return buffer(thread, ask(thread, call, arguments));
    case DeviceCall::kLaunchDevice:
      return launch(thread, arguments);
    case DeviceCall::kLaunchDeviceV2:
    case DeviceCall::kStreamDestroy:
    case DeviceCall::kStreamWaitEvent:
    case DeviceCall::kEventRecord:
    case DeviceCall::kEventDestroy:
    case DeviceCall::kGraphSetConditional:
      return static_cast<std::uint64_t>(ask(thread, call, arguments).error);
    case DeviceCall::kStreamCreate:
    case DeviceCall::kEventCreate:
    case DeviceCall::kGetLimit:
      return stored<std::uint64_t>(thread, call, arguments);
    // The sizes in cudaFuncAttributes are 64 bits wide, but libcudadevrt has cleared them before.
    case DeviceCall::kFuncGetAttribute:
    case DeviceCall::kDeviceGetAttribute:
    case DeviceCall::kGetDeviceCount:
    case DeviceCall::kGetDevice:
    case DeviceCall::kGetCacheConfig:
    case DeviceCall::kGetSharedMemConfig:
    case DeviceCall::kMaxActiveBlocks:
      return stored<std::uint32_t>(thread, call, arguments);
  }
  return static_cast<std::uint64_t>(DeviceError::kInvalidValue);
}

}  // namespace gpurun::emulated
