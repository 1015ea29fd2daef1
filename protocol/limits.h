// Every bound of the protocol, with its unit, and what happens at it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpurun::limits {

// The port of gpurund, when -l names none.
inline constexpr std::uint16_t kDefaultPort = 4790;

// A frame's payload. A larger one is a protocol error and ends the session.
inline constexpr std::size_t kFrameBytesMax = std::size_t{4} << 20;
// One record of the command log, header included; larger payloads travel as bulk.
inline constexpr std::size_t kRecordBytesMax = std::size_t{256} << 10;
// Payload of a copy that travels inside its record instead of on a bulk lane.
inline constexpr std::size_t kInlineBytesMax = std::size_t{8} << 10;
// One frame of a bulk lane.
inline constexpr std::size_t kBulkChunkBytes = std::size_t{256} << 10;
// One bulk transfer (a copy, a module image). The caller gets INVALID_VALUE beyond.
inline constexpr std::uint64_t kBulkBytesMax = std::uint64_t{1} << 40;
// Bytes that a bulk lane may have in flight or retained; senders wait beyond.
inline constexpr std::size_t kBulkWindowBytes = std::size_t{64} << 20;
// The command log's ring, which is also what is retained until acknowledged; appenders wait beyond.
inline constexpr std::size_t kLogBytes = std::size_t{8} << 20;
// Calls that the worker has decoded and not yet issued, with their payloads; it reads no further
// beyond.
inline constexpr std::size_t kQueuedBytesMax = std::size_t{64} << 20;
// Kernel parameter block (CUDA Programming Guide, sm_70 and later).
inline constexpr std::size_t kKernelParameterBytesMax = 32'764;
// NUL-terminated text of a call (kernel and symbol names; mangled C++ names are long).
inline constexpr std::size_t kStringBytesMax = std::size_t{64} << 10;
// One module image. CUDA_ERROR_INVALID_IMAGE beyond.
inline constexpr std::size_t kImageBytesMax = std::size_t{2} << 30;
// Elements of one array argument.
inline constexpr std::size_t kArrayCountMax = 65'536;
// Live handles of one session, all kinds together. CUDA_ERROR_OUT_OF_MEMORY beyond.
inline constexpr std::size_t kHandlesMax = std::size_t{1} << 22;
// Threads of one client that have called CUDA and still live.
inline constexpr std::size_t kLanesMax = 65'536;
// Rows of a table of CUDA calls, and so every opcode: a peer that tells more of them does not speak
// our protocol, and the session is refused.
inline constexpr std::size_t kRowsMax = 4'096;
// Bytes of the hello frame, the only thing an unauthenticated peer can make us parse.
inline constexpr std::size_t kHelloBytesMax = 4'096;
// Connections that have not yet proved who they are.
inline constexpr std::size_t kHalfOpenMax = 64;

// Seconds.
inline constexpr int kHandshakeDeadlineS = 10;
inline constexpr int kHeartbeatS = 5;
// Nothing at all heard from the peer, heartbeats included: the peer is gone.
inline constexpr int kSilenceDeadlineS = 30;

}  // namespace gpurun::limits
