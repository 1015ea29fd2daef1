// Sound: what the client knows about the soundness of a call's arguments before it posts the call.
#pragma once

#include <cstdint>

namespace gpurun::client::interpose {

enum class Sound : std::uint8_t {
  kRight,
  kWrong,    // CUDA_ERROR_INVALID_VALUE.
  kUnknown,  // Only the worker's driver can decide: the call waits for its reply.
};

}  // namespace gpurun::client::interpose
