// Capture queries: cuStreamGetCaptureInfo for programs that ask for more than the state of a
// capture. They ask for its graph, and for the nodes on which its next node depends. Form kRaw, in
// the stream's queue.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpurun::protocol {

// `room` handles of 8 bytes follow. The client minted them for nodes without a handle.
struct CaptureQuestion {
  std::uint64_t graph = 0;  // Minted for the graph, if the client has no handle for it. 0: not
                            // asked.
  std::uint32_t room = 0;   // At most kCaptureNodesMax.
  std::uint32_t reserved = 0;
};
static_assert(sizeof(CaptureQuestion) == 16);

// When count <= room, `count` node handles follow, and then as many CUgraphEdgeData. Otherwise
// nothing follows, and the client asks again.
struct CaptureAnswer {
  std::uint32_t status = 0;  // CUstreamCaptureStatus. Unless ACTIVE, all else is 0.
  std::uint32_t count = 0;
  std::uint64_t id = 0;
  std::uint64_t graph = 0;  // The client's handle of it. 0: not asked.
};
static_assert(sizeof(CaptureAnswer) == 24);

inline constexpr std::size_t kEdgeBytes = 8;  // Of a CUgraphEdgeData (cuda.h).
// CUDA_ERROR_NOT_SUPPORTED beyond, because a question and its answer are one record each.
inline constexpr std::uint32_t kCaptureNodesMax = 4096;

}  // namespace gpurun::protocol
