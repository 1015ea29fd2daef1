// Every bound of the protocol, with its unit, and what happens at it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpurun::limits {

// The port of gpurund, when -l names none.
inline constexpr std::uint16_t kDefaultPort = 4790;

// A frame's payload. A larger one is a protocol error and ends the session.
inline constexpr std::size_t kFrameBytesMax = std::size_t{4} << 20;
// One record of the command log, header included, and one reply; larger payloads travel as bulk. A
// larger one is a protocol error and ends the session.
inline constexpr std::size_t kRecordBytesMax = std::size_t{256} << 10;
// Payload of a copy that travels inside its record, or of one out of the device inside its reply,
// instead of on a bulk lane. A larger one there is a protocol error.
inline constexpr std::size_t kInlineBytesMax = std::size_t{8} << 10;
// Likewise of a copy to the device, which a client sends so while little of its log is under way.
inline constexpr std::size_t kInlineCopyInBytesMax = std::size_t{64} << 10;
// A copy out of the device whose bytes the worker may say on the log channel
// (ReplyKind::kCopyBytes). A larger one there is a protocol error.
inline constexpr std::size_t kItemCopyBytesMax = std::size_t{32} << 10;
// Bytes of a transfer in one frame of a bulk lane. More are a protocol error.
inline constexpr std::size_t kBulkChunkBytes = std::size_t{512} << 10;
// Retired chunks of which the worker tells the client together, at most. A client keeps as many
// slots for whoever must go on: else these could all wait for a receipt that waits for more of
// them.
inline constexpr std::size_t kChunksPerReceipt = 4;
// One bulk transfer (a copy, a module image). The caller gets INVALID_VALUE beyond.
inline constexpr std::uint64_t kBulkBytesMax = std::uint64_t{1} << 40;
// Bytes that a bulk lane may have in flight or retained; senders wait beyond.
inline constexpr std::size_t kBulkWindowBytes = std::size_t{64} << 20;
// The command log's ring, which is also what is retained until acknowledged; appenders wait beyond.
inline constexpr std::size_t kLogBytes = std::size_t{8} << 20;
// Calls that the worker has decoded and not yet issued, with their payloads; it reads no further
// beyond.
inline constexpr std::size_t kQueuedBytesMax = std::size_t{64} << 20;
// Likewise while the client has been asked to run a function of the program: that may wait for what
// still comes, and its end comes on the same way. The session ends beyond, and says so.
inline constexpr std::size_t kQueuedBehindClientBytesMax = std::size_t{1} << 30;
// Kernel parameter block (CUDA Programming Guide, sm_70 and later). CUDA_ERROR_INVALID_VALUE
// beyond.
inline constexpr std::size_t kKernelParameterBytesMax = 32'764;
// NUL-terminated text of a call (kernel and symbol names; mangled C++ names are long), the NUL
// included. CUDA_ERROR_INVALID_VALUE beyond.
inline constexpr std::size_t kStringBytesMax = std::size_t{64} << 10;
// One module image. CUDA_ERROR_INVALID_IMAGE beyond.
inline constexpr std::size_t kImageBytesMax = std::size_t{2} << 30;
// Link states (cuLinkCreate) that one session has open. CUDA_ERROR_OUT_OF_MEMORY beyond.
inline constexpr std::size_t kLinkStatesMax = 1'024;
// Bytes of all inputs that these have been given; each input counts as kLinkInputBytesMin at least.
// CUDA_ERROR_OUT_OF_MEMORY beyond.
inline constexpr std::size_t kLinkBytesMax = std::size_t{1} << 30;
inline constexpr std::size_t kLinkInputBytesMin = std::size_t{4} << 10;
// Elements of one array argument. CUDA_ERROR_INVALID_VALUE beyond.
inline constexpr std::size_t kArrayCountMax = 65'536;
// Live handles of one session, all kinds together. CUDA_ERROR_OUT_OF_MEMORY beyond.
inline constexpr std::size_t kHandlesMax = std::size_t{1} << 22;
// One window of device addresses. A worker answers INVALID_VALUE to a wish beyond.
inline constexpr std::uint64_t kWindowBytesMax = std::uint64_t{1} << 40;
// Memory of other processes that one session has open (cuIpcOpenMemHandle). OUT_OF_MEMORY beyond.
inline constexpr std::size_t kSharedOpeningsMax = 4096;
// An allocation out of credits. A larger one is the driver's own, costs a fence, and is the
// server's again as soon as it is freed; asked for as credits it is an INVALID_VALUE.
inline constexpr std::uint64_t kWindowedBytesMax = std::uint64_t{64} << 20;
// What a client is given at its first request, and at any: each grant is twice the one before, at
// most a sixteenth of what the device has free, and never less than was asked for.
inline constexpr std::uint64_t kCreditBytesFirst = std::uint64_t{32} << 20;
inline constexpr std::uint64_t kCreditBytesMax = std::uint64_t{256} << 20;
// Credits that a client keeps although nothing lives in them; a free beyond gives a piece back.
inline constexpr std::uint64_t kIdleCreditBytesMax = std::uint64_t{128} << 20;
// Threads of one client that have called CUDA and still live. CUDA_ERROR_OUT_OF_MEMORY for a thread
// beyond.
inline constexpr std::size_t kLanesMax = 65'536;
// Rows of a table of CUDA calls, and so every opcode: a peer that tells more of them does not speak
// our protocol, and the session is refused.
inline constexpr std::size_t kRowsMax = 4'096;
// Bytes of the hello frame, the only thing an unauthenticated peer can make us parse, and of a
// goodbye's reason. The connection is closed beyond.
inline constexpr std::size_t kHelloBytesMax = 4'096;
// Connections of one listener that are in a handshake at a time, each with a thread, and those of
// one source (an IPv4 address, a /64 of IPv6, a user at the local socket). Others wait.
inline constexpr std::size_t kHalfOpenMax = 64;
inline constexpr std::size_t kHalfOpenOfSourceMax = 16;
// Milliseconds for which a connection in a handshake keeps its place while others wait for one. The
// oldest ones are closed then, as many as wait.
inline constexpr int kHalfOpenGraceMs = 1'000;
// Connections of one listener that prove a ticket with the first bytes that they send, at a time.
inline constexpr std::size_t kTicketHandshakesMax = 64;
// Accepted connections of one source that have sent nothing yet: the oldest is closed beyond.
inline constexpr std::size_t kSilentOfSourceMax = 256;
// Those of one source that have sent something and wait for a handshake. Beyond the first number
// random ones are closed, ever more often; no more wait than the second.
inline constexpr std::size_t kWaitingOfSourceSoft = 256, kWaitingOfSourceMax = 512;
// All of these of one listener. The source that has most loses its oldest one beyond.
inline constexpr std::size_t kWaitingConnectionsMax = 1'024;

// The log and bulk lanes of one session, together. The attach is refused beyond.
inline constexpr std::size_t kConnectionsMax = 16;
// Text within a control message (a reason, a name). A longer one of ours is cut; a peer's is a
// protocol error.
inline constexpr std::size_t kTextBytesMax = 1'024;
// GPUs that a listing names; what a server has beyond is not listed. A peer that tells more does
// not speak our protocol.
inline constexpr std::size_t kListedGpusMax = 1'024;
// Models of GPUs that a grant names; what a lease has beyond is not named. A peer that tells more
// does not speak our protocol.
inline constexpr std::size_t kModelsMax = 8;
// A listing of so many GPUs. A protocol error beyond.
inline constexpr std::size_t kListingBytesMax = std::size_t{1} << 20;
// Processes that may ever attach to one lease, and those whose connections have not all come yet.
// An attach is refused beyond.
inline constexpr std::size_t kSessionsMax = std::size_t{1} << 20;
inline constexpr std::size_t kGatheringMax = 128;
// Connections of such sessions of one lease; and those of all leases of one user, together with the
// connections of sessions that wait for their worker to be started. Each is a descriptor of
// gpurund's. An attach is refused beyond.
inline constexpr std::size_t kGatheredOfLeaseMax = 256;
inline constexpr std::size_t kGatheredOfUserMax = 1'024;
// Requests that wait for GPUs of one server, and those of one user with a token. A lease is refused
// beyond.
inline constexpr std::size_t kWaitingMax = 1'024;
inline constexpr std::size_t kWaitingOfUserMax = 64;

// Seconds.
// For a peer to prove who it is, from its first byte on, and later for each thing that is asked of
// it; the connection is closed beyond.
inline constexpr int kHandshakeDeadlineS = 10;
// Whoever has said nothing for so long says that he lives.
inline constexpr int kHeartbeatS = 5;
// Nothing at all heard from the peer, heartbeats included: the peer is gone.
inline constexpr int kSilenceDeadlineS = 30;

}  // namespace gpurun::limits
