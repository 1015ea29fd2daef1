// Host functions (cuLaunchHostFunc, cuStreamAddCallback): payload of form raw under the opcode of
// cuLaunchHostFunc. Three records to one function, held together by the client's ticket:
//
//   gate     in the stream's order, posted by the program's call. The stream's later calls are not
//            issued before the release; the device has nothing to wait for.
//   wait     a fence of the client's thread for this stream, ordered nowhere. Answered when the
//            stream has reached the gate, with the CUresult of the stream.
//   release  posted when the function has returned.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpurun::protocol {

enum class HostFunctionStep : std::uint32_t { kGate = 1, kWait = 2, kRelease = 3 };

struct HostFunctionPayload {
  HostFunctionStep step = HostFunctionStep::kGate;
  std::uint32_t reserved = 0;
  std::uint64_t ticket = 0;  // Not 0; never given twice in a session.
};
static_assert(sizeof(HostFunctionPayload) == 16);

// Functions of one session that have not run yet. CUDA_ERROR_OUT_OF_MEMORY beyond.
inline constexpr std::size_t kHostFunctionsMax = 65'536;

}  // namespace gpurun::protocol
