// Device memory that client processes of one lease share (cuIpc..., docs/adr/0018): payloads of
// form raw of cuIpcGetMemHandle, cuIpcOpenMemHandle_v2 and cuIpcCloseMemHandle.
#pragma once

#include <array>
#include <cstdint>

namespace gpurun::protocol {

// What the program holds of memory or an event of another process: CUDA's 64 bytes, chosen by the
// daemon at random.
using SharingHandle = std::array<std::uint8_t, 64>;

// cuIpcGetMemHandle. A fence of Order::kContext, of the context that the memory belongs to; its
// reply is a SharingHandle. With `bytes` 0 it may be posted: the allocation at `address` ends, and
// with it its handle.
struct ShareRequest {
  std::uint64_t address = 0;  // Of an allocation, whole.
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
  std::uint64_t address = 0;  // In the window, or wherever the driver has put it.
  std::uint64_t bytes = 0;
  std::uint32_t device = 0;  // The worker's ordinal: whose memory it is.
  std::uint32_t zero = 0;
};
static_assert(sizeof(OpenGrant) == 40);

// cuIpcCloseMemHandle: a fence of Order::kContext, answered with a CloseReply. With `all` it may be
// posted, without a context: its context has ended.
struct CloseRequest {
  std::uint64_t address = 0;
  std::uint32_t all = 0;
  std::uint32_t zero = 0;
};
static_assert(sizeof(CloseRequest) == 16);

struct CloseReply {
  std::uint32_t left = 0;  // Openings of it in the context; 0: it is gone.
  std::uint32_t zero = 0;
};
static_assert(sizeof(CloseReply) == 8);

}  // namespace gpurun::protocol
