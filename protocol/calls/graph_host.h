// Graph nodes that touch the client: host functions, and copies between the device and the client's
// memory. Payloads of form kRaw, and items of the worker.
//
// The client mints an operation for each node's work and sends its number with the node. In place
// of the node the worker gives the driver a host node. For a copy it adds a node beside it that
// copies from or to the worker's memory (docs/adr/0011-graphs-and-host-memory.md). At each launch,
// when the graph reaches that node:
//
//   function  the worker sends kHostTurn. The client runs it and answers with step kDone.
//   copy in   the worker sends kHostTurn. The client answers with its bytes, in as many steps
//   kBytes
//             as they need, and then with kDone.
//   copy out  the worker sends as many kHostBytes as the bytes need, and goes on. The client gets
//             the worker's later items, for instance a completion, after these.
//
// kHostGone ends an operation: no graph, executable graph or launch has it any more.
//
// A user object of the program (cuUserObjectCreate) is an operation too, without turns. The worker
// makes an object of its driver for it, with the same number of references. kHostGone means that
// the last reference has ended, and the client calls the program's destructor.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpurun::protocol {

enum class GraphHostStep : std::uint32_t {
  // GraphNodePayload, under the opcode of the node's function. cuGraphAdd...: in `graph`, or with
  // order kStream into that stream's capture. ...SetParams: `node`, in the executable `graph` when
  // that is not 0.
  kNode = 1,
  // GraphTurnPayload, under the opcode of cuGraphAddHostNode, with no order.
  kBytes = 2,
  kDone = 3
};

enum class GraphWork : std::uint32_t {
  kFunction = 1,
  kCopyIn = 2,     // The client's memory to the device.
  kCopyOut = 3,    // The device to the client's memory.
  kCopyDevice = 4  // Within the device: no operation.
};

// One side of a copy, on the device. The pitches are distances in bytes between lines and between
// slices.
struct GraphCopySide {
  std::uint64_t address = 0;
  std::uint64_t line_pitch = 0;
  std::uint64_t slice_pitch = 0;
  std::uint64_t array = 0;  // Handle. Not 0: replaces the three above, and the copy starts at x, y,
                            // z in it.
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
  std::uint32_t dependency_count = 0;  // This many node handles of 8 bytes follow.
  std::uint32_t reserved = 0;
};
static_assert(sizeof(GraphNodePayload) == 176);

struct GraphTurnPayload {
  GraphHostStep step = GraphHostStep::kDone;
  std::uint32_t reserved = 0;
  std::uint64_t turn = 0;
  std::uint64_t offset = 0;  // kBytes: where the bytes that follow belong. Lines have no gaps.
};
static_assert(sizeof(GraphTurnPayload) == 24);

// cuUserObjectCreate. The functions that retain and release it are ordinary calls.
struct GraphUserObjectPayload {
  std::uint64_t object = 0;     // The new handle.
  std::uint64_t operation = 0;  // Not 0.
  std::uint32_t references = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(GraphUserObjectPayload) == 24);

// cuGraphHostNodeGetParams and cuGraphMemcpyNodeGetParams send the node's handle, of 8 bytes. The
// reply of the first is the number of the operation, of 8 bytes, and of the second this.
struct GraphCopyReply {
  GraphCopySide source;         // On the device.
  GraphCopySide destination;    // On the device.
  std::uint64_t operation = 0;  // Not 0: it has the side, or both sides, in the client's memory.
  std::uint64_t width = 0;      // Bytes of a line.
  std::uint64_t lines = 0;
  std::uint64_t slices = 0;
  std::uint8_t source_is_host = 0;       // The address is in memory of the host arena.
  std::uint8_t destination_is_host = 0;  // As above.
  std::uint8_t reserved[6] = {};
};
static_assert(sizeof(GraphCopyReply) == 152);

// cuGraphExecUpdate_v2: handles, and CUgraphExecUpdateResultInfo with handles that may be 0. A node
// of the answer without a handle gets a spare one. The client retires the spares that the
// reply does not name.
struct GraphUpdatePayload {
  std::uint64_t exec = 0;
  std::uint64_t graph = 0;
  std::uint64_t spares[2] = {};  // For `node` and `from_node`.
};
struct GraphUpdateReply {
  std::uint32_t result = 0;
  std::uint32_t reserved = 0;
  std::uint64_t node = 0;
  std::uint64_t from_node = 0;
};
static_assert(sizeof(GraphUpdateReply) == 24);

// cuGraphInstantiateWithParams, without the upload, which the client requests by a call of its own.
// The reply comes with a failure, too.
struct GraphInstantiation {
  std::uint64_t exec = 0;  // The new handle.
  std::uint64_t graph = 0;
  std::uint64_t flags = 0;
  std::uint64_t spare = 0;  // As in GraphUpdatePayload.
};
struct GraphInstantiationReply {
  std::uint32_t result = 0;  // CUgraphInstantiateResult.
  std::uint32_t reserved = 0;
  std::uint64_t node = 0;  // 0: none.
};
static_assert(sizeof(GraphInstantiation) == 32 && sizeof(GraphInstantiationReply) == 16);

// The most bytes of one kBytes record and of one kHostBytes item. Small enough that the client
// acknowledges items long before the worker would have to wait.
inline constexpr std::size_t kGraphBytesAtOnce = std::size_t{128} << 10;
// Memory that one session's worker uses for graph copies. CUDA_ERROR_OUT_OF_MEMORY beyond.
inline constexpr std::uint64_t kGraphShadowBytesMax = std::uint64_t{4} << 30;
// Live operations of one session. CUDA_ERROR_OUT_OF_MEMORY beyond.
inline constexpr std::size_t kGraphOperationsMax = 1'000'000;

}  // namespace gpurun::protocol
