// Shared device memory: payloads of form kRaw of cuIpcGetMemHandle, cuIpcOpenMemHandle_v2 and
// cuIpcCloseMemHandle. Client processes of one lease share it (docs/adr/0018).
#pragma once

#include <array>
#include <cstdint>

namespace gpurun::protocol {

// The program's handle for memory or an event of another process: CUDA's 64 bytes, which the daemon
// draws at random.
using SharingHandle = std::array<std::uint8_t, 64>;

// cuIpcGetMemHandle: a fence of Order::kContext, in the context that owns the memory. The reply is
// a SharingHandle. With `bytes` 0 it may be posted, and ends the handle: the allocation at
// `address` ends.
struct ShareRequest {
  std::uint64_t address = 0;  // The start of an allocation.
  std::uint64_t bytes = 0;
  std::uint32_t device = 0;  // The worker's ordinal.
  std::uint32_t zero = 0;
};
static_assert(sizeof(ShareRequest) == 24);

// cuIpcOpenMemHandle_v2: a fence of Order::kContext, answered with an OpenGrant.
struct OpenRequest {
  SharingHandle handle{};
  // As in CreditRequest (device_memory.h), in case the device has no window yet.
  std::uint64_t wished_window = 0;
  std::uint64_t window_bytes = 0;
  std::uint32_t flags = 0;
  std::uint32_t zero = 0;
};
static_assert(sizeof(OpenRequest) == 88);

struct OpenGrant {
  std::uint64_t window = 0;  // As in CreditGrant.
  std::uint64_t window_bytes = 0;
  std::uint64_t address = 0;  // In the window, or wherever the driver has placed it.
  std::uint64_t bytes = 0;
  std::uint32_t device = 0;  // The worker's ordinal of the device that has the memory.
  std::uint32_t zero = 0;
};
static_assert(sizeof(OpenGrant) == 40);

// cuIpcCloseMemHandle: a fence of Order::kContext, answered with a CloseReply. With `all`, the
// context of the openings has ended. Then it may be posted, without a context.
struct CloseRequest {
  std::uint64_t address = 0;
  std::uint32_t all = 0;
  std::uint32_t zero = 0;
};
static_assert(sizeof(CloseRequest) == 16);

struct CloseReply {
  std::uint32_t left = 0;  // Openings of it that the context still has. 0: it is closed.
  std::uint32_t zero = 0;
};
static_assert(sizeof(CloseReply) == 8);

}  // namespace gpurun::protocol
