// cuStreamGetCaptureInfo where the program asks for more than the state of a capture: the graph
// that it makes, and the nodes that its next one stands behind. Form raw, in the queue of the
// stream.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpurun::protocol {

// `room` handles that the client minted follow, of 8 bytes: for nodes that it has none of.
struct CaptureQuestion {
  std::uint64_t graph = 0;  // Minted for the graph, if the client has none of it; 0: not asked.
  std::uint32_t room = 0;   // At most kCaptureNodesMax.
  std::uint32_t reserved = 0;
};
static_assert(sizeof(CaptureQuestion) == 16);

// When count <= room, `count` handles of nodes follow, then CUgraphEdgeData of as many edges; else
// nothing, and the client asks again.
struct CaptureAnswer {
  std::uint32_t status = 0;  // CUstreamCaptureStatus; all else is 0 unless it is ACTIVE.
  std::uint32_t count = 0;
  std::uint64_t id = 0;
  std::uint64_t graph = 0;  // The client's handle of it; 0: not asked.
};
static_assert(sizeof(CaptureAnswer) == 24);

inline constexpr std::size_t kEdgeBytes = 8;  // Of a CUgraphEdgeData (cuda.h).
// CUDA_ERROR_NOT_SUPPORTED beyond: one question and its answer are one record each.
inline constexpr std::uint32_t kCaptureNodesMax = 4096;

}  // namespace gpurun::protocol
