// Nodes of graphs that touch the client: host functions, and copies between the device and the
// client's memory. Payloads of form raw, and items of the worker.
//
// The client mints an operation for each node's work and says its number with the node. The worker
// gives the driver a host node in its place, with for a copy a node beside it that copies from or
// to memory of the worker (docs/adr/0011-graphs-and-host-memory.md). At each launch, where the
// graph stands at that node:
//
//   function  the worker says kHostTurn; the client runs it and answers with step kDone.
//   copy in   the worker says kHostTurn; the client answers with its bytes, step kBytes as often
//             as they need, then kDone.
//   copy out  the worker says kHostBytes as often as the bytes need, and goes on. What it says
//             later, a completion for instance, is heard later.
//
// kHostGone ends an operation: no graph, executable or launch has it any more.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpurun::protocol {

enum class GraphHostStep : std::uint32_t {
  // GraphNodePayload, under the opcode of the node's function. cuGraphAdd...: in `graph`, or with
  // order kStream into the capture of that stream. ...SetParams: `node`, in the executable `graph`
  // when it is not 0.
  kNode = 1,
  // GraphTurnPayload, under the opcode of cuGraphAddHostNode, ordered nowhere.
  kBytes = 2,
  kDone = 3
};

enum class GraphWork : std::uint32_t {
  kFunction = 1,
  kCopyIn = 2,     // Client's memory to the device.
  kCopyOut = 3,    // The device to the client's memory.
  kCopyDevice = 4  // Within the device: no operation.
};

// One side of a copy on the device. Between lines and slices lie these distances, in bytes.
struct GraphCopySide {
  std::uint64_t address = 0;
  std::uint64_t line_pitch = 0;
  std::uint64_t slice_pitch = 0;
  std::uint64_t array = 0;  // Handle; not 0: in place of all that, from here in it on.
  std::uint64_t x = 0;      // Bytes,
  std::uint64_t y = 0;      // lines,
  std::uint64_t z = 0;      // slices.
};

struct GraphNodePayload {
  GraphHostStep step = GraphHostStep::kNode;
  GraphWork work = GraphWork::kFunction;
  std::uint64_t graph = 0;
  std::uint64_t node = 0;
  std::uint64_t operation = 0;
  GraphCopySide source;       // kCopyOut, kCopyDevice.
  GraphCopySide destination;  // kCopyIn, kCopyDevice.
  std::uint64_t width = 0;    // Bytes of a line.
  std::uint64_t lines = 0;
  std::uint64_t slices = 0;
  std::uint32_t dependency_count = 0;  // So many handles of nodes follow, of 8 bytes.
  std::uint32_t reserved = 0;
};
static_assert(sizeof(GraphNodePayload) == 176);

struct GraphTurnPayload {
  GraphHostStep step = GraphHostStep::kDone;
  std::uint32_t reserved = 0;
  std::uint64_t turn = 0;
  std::uint64_t offset = 0;  // kBytes: where the bytes that follow belong; lines lie close.
};
static_assert(sizeof(GraphTurnPayload) == 24);

// cuGraphExecUpdate_v2: handles, and CUgraphExecUpdateResultInfo with handles that may be 0.
struct GraphUpdatePayload {
  std::uint64_t exec = 0;
  std::uint64_t graph = 0;
};
struct GraphUpdateReply {
  std::uint32_t result = 0;
  std::uint32_t reserved = 0;
  std::uint64_t node = 0;
  std::uint64_t from_node = 0;
};
static_assert(sizeof(GraphUpdateReply) == 24);

// What one kBytes record and one kHostBytes item hold at most. Small enough that the client
// acknowledges items long before the worker would have to wait for it.
inline constexpr std::size_t kGraphBytesAtOnce = std::size_t{128} << 10;
// Memory of one session's worker for copies of graphs. CUDA_ERROR_OUT_OF_MEMORY beyond.
inline constexpr std::uint64_t kGraphShadowBytesMax = std::uint64_t{4} << 30;
// Operations of one session that live. CUDA_ERROR_OUT_OF_MEMORY beyond.
inline constexpr std::size_t kGraphOperationsMax = 1'000'000;

}  // namespace gpurun::protocol
