// Transports: over what a session's connections may go, best first, as the user allows it:
// GPURUN_TRANSPORTS=shm,tcp restricts and orders them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace gpurun::client {

enum class TransportKind : std::uint8_t {
  kSharedMemory,  // "shm": with a server of this machine, where nothing is encrypted.
  kTcp,           // "tcp": with TLS, or without, as the control link.
};

inline constexpr const char* kTransportsVariable = "GPURUN_TRANSPORTS";

inline std::vector<TransportKind> all_transports() {
  return {TransportKind::kSharedMemory, TransportKind::kTcp};
}

// "shm,tcp": each at most once, at least one; empty text: all of them. kInvalidArgument says what
// is wrong.
Result<std::vector<TransportKind>> parse_transports(std::string_view text);

}  // namespace gpurun::client
