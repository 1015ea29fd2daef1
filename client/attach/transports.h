// Transports: the ways that a session's connections may take, best first. GPURUN_TRANSPORTS=shm,tcp
// restricts and orders them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace gpurun::client {

enum class TransportKind : std::uint8_t {
  kSharedMemory,  // "shm": with a server on this machine. Nothing is encrypted.
  kTcp,           // "tcp": with TLS or without, as the control link.
};

inline constexpr const char* kTransportsVariable = "GPURUN_TRANSPORTS";

inline std::vector<TransportKind> all_transports() {
  return {TransportKind::kSharedMemory, TransportKind::kTcp};
}

// Parses "shm,tcp": each at most once, and at least one. Empty text means all of them.
// kInvalidArgument: the message gives the reason.
Result<std::vector<TransportKind>> parse_transports(std::string_view text);

}  // namespace gpurun::client
