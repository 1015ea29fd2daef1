// Host functions (cuLaunchHostFunc, cuStreamAddCallback): payload of form kRaw under the opcode of
// cuLaunchHostFunc. One function takes three records with the same ticket, which the client mints:
//
//   gate     in the stream's order, posted by the program's call. The worker issues the stream's
//            later calls only after the release. The device itself waits for nothing.
//   wait     a fence of the client's thread for this stream, with no order. The worker answers with
//            the stream's CUresult when the stream has reached the gate.
//   release  posted when the function has returned.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpurun::protocol {

enum class HostFunctionStep : std::uint32_t { kGate = 1, kWait = 2, kRelease = 3 };

struct HostFunctionPayload {
  HostFunctionStep step = HostFunctionStep::kGate;
  std::uint32_t reserved = 0;
  std::uint64_t ticket = 0;  // Not 0. Never reused in a session.
};
static_assert(sizeof(HostFunctionPayload) == 16);

// Host functions of one session that have not run yet. CUDA_ERROR_OUT_OF_MEMORY beyond.
inline constexpr std::size_t kHostFunctionsMax = 65'536;

}  // namespace gpurun::protocol
