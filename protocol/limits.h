// Limits: every bound of the protocol, with its unit and the effect of exceeding it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpurun::limits {

// The port of gpurund, when -l names none.
inline constexpr std::uint16_t kDefaultPort = 4790;

// A frame's payload. A larger one is a protocol error and ends the session.
inline constexpr std::size_t kFrameBytesMax = std::size_t{4} << 20;
// One record of the command log, header included, and one reply. Larger payloads travel as bulk. A
// larger one is a protocol error and ends the session.
inline constexpr std::size_t kRecordBytesMax = std::size_t{256} << 10;
// Payload of a copy inside its record, or of a copy out of the device inside its reply, instead of
// on a bulk connection. A larger one there is a protocol error.
inline constexpr std::size_t kInlineBytesMax = std::size_t{8} << 10;
// As kInlineBytesMax, for a copy to the device that a client sends while little of its log is
// unsent.
inline constexpr std::size_t kInlineCopyInBytesMax = std::size_t{64} << 10;
// A copy out of the device with its bytes on the log connection (ReplyKind::kCopyBytes). A larger
// one there is a protocol error.
inline constexpr std::size_t kItemCopyBytesMax = std::size_t{32} << 10;
// Bytes of a transfer in one frame of a bulk connection. More are a protocol error.
inline constexpr std::size_t kBulkChunkBytes = std::size_t{512} << 10;
// At most this many retired chunks share one receipt of the worker. A client reserves as many slots
// for transfers that must make progress. Otherwise these slots could all wait for a receipt that
// itself waits for more chunks.
inline constexpr std::size_t kChunksPerReceipt = 4;
// One bulk transfer (a copy, a module image). The caller gets INVALID_VALUE beyond.
inline constexpr std::uint64_t kBulkBytesMax = std::uint64_t{1} << 40;
// Bytes that a bulk connection may have in flight or retained. Senders wait beyond.
inline constexpr std::size_t kBulkWindowBytes = std::size_t{64} << 20;
// A copy to the device that the worker reads out of the client's memory (kFlagPulled), or a copy
// from the device that it writes there (kFlagWritten). A record
// that names less is a protocol error.
inline constexpr std::uint64_t kPulledBytesMin = std::uint64_t{1} << 20;
// Such a copy that is read into the memory of a GPU, without a slot. Less takes slots: its stream
// waits for a notice, the flush and the next call meanwhile, which costs more than the second step.
inline constexpr std::uint64_t kDirectBytesMin = std::uint64_t{4} << 20;
// The command log's ring, which also retains records until they are acknowledged. Appenders wait
// beyond.
inline constexpr std::size_t kLogBytes = std::size_t{8} << 20;
// Calls that the worker has decoded and not yet issued, with their payloads. It stops reading
// beyond.
inline constexpr std::size_t kQueuedBytesMax = std::size_t{64} << 20;
// As kQueuedBytesMax, while the client runs a function of the program. The function may wait for
// calls that are still to come, and its end comes over the same log. The session ends beyond, with
// a message.
inline constexpr std::size_t kQueuedBehindClientBytesMax = std::size_t{1} << 30;
// Kernel parameter block (CUDA Programming Guide, sm_70 and later). CUDA_ERROR_INVALID_VALUE
// beyond.
inline constexpr std::size_t kKernelParameterBytesMax = 32'764;
// NUL-terminated text of a call, the NUL included: kernel and symbol names. Mangled C++ names are
// long. CUDA_ERROR_INVALID_VALUE beyond.
inline constexpr std::size_t kStringBytesMax = std::size_t{64} << 10;
// One module image. CUDA_ERROR_INVALID_IMAGE beyond.
inline constexpr std::size_t kImageBytesMax = std::size_t{2} << 30;
// Open link states (cuLinkCreate) of one session. CUDA_ERROR_OUT_OF_MEMORY beyond.
inline constexpr std::size_t kLinkStatesMax = 1'024;
// Bytes of all inputs to the open link states. Each input counts as at least kLinkInputBytesMin.
// CUDA_ERROR_OUT_OF_MEMORY beyond.
inline constexpr std::size_t kLinkBytesMax = std::size_t{1} << 30;
inline constexpr std::size_t kLinkInputBytesMin = std::size_t{4} << 10;
// Elements of one array argument. CUDA_ERROR_INVALID_VALUE beyond.
inline constexpr std::size_t kArrayCountMax = 65'536;
// Live handles of one session, all kinds together. CUDA_ERROR_OUT_OF_MEMORY beyond.
inline constexpr std::size_t kHandlesMax = std::size_t{1} << 22;
// One window of device addresses. A worker answers INVALID_VALUE to a larger request.
inline constexpr std::uint64_t kWindowBytesMax = std::uint64_t{1} << 40;
// Memory of other processes that one session has open (cuIpcOpenMemHandle). OUT_OF_MEMORY beyond.
inline constexpr std::size_t kSharedOpeningsMax = 4096;
// The memory file of a session's host arena, and one block of it. A client keeps larger host memory
// to itself.
inline constexpr std::uint64_t kHostArenaBytes = std::uint64_t{1} << 40;
inline constexpr std::uint64_t kHostBlockBytesMax = std::uint64_t{64} << 30;
// Blocks that a worker maps for a session. OUT_OF_MEMORY beyond, and beyond half of the machine's
// memory in all.
inline constexpr std::size_t kHostBlocksMax = 1'024;
// Managed variables of one session that host code can use, and their bytes together.
inline constexpr std::size_t kManagedVariablesMax = 4'096;
inline constexpr std::uint64_t kManagedVariableBytesMax = std::uint64_t{4} << 30;
// An allocation out of credits. A larger one is the driver's own, costs a fence, and returns to the
// server as soon as it is freed. A credit request for more is an INVALID_VALUE.
inline constexpr std::uint64_t kWindowedBytesMax = std::uint64_t{64} << 20;
// A client's first grant of credits, and the largest. Each grant is twice the one before, at most a
// sixteenth of the device's free memory, and never less than the request.
inline constexpr std::uint64_t kCreditBytesFirst = std::uint64_t{32} << 20;
inline constexpr std::uint64_t kCreditBytesMax = std::uint64_t{256} << 20;
// Idle credits that a client keeps. A free beyond returns a piece to the server.
inline constexpr std::uint64_t kIdleCreditBytesMax = std::uint64_t{128} << 20;
// Live threads of one client that have called CUDA. CUDA_ERROR_OUT_OF_MEMORY for a thread beyond.
inline constexpr std::size_t kLanesMax = 65'536;
// Rows of a table of CUDA calls. Every opcode is below. A peer with more rows does not speak our
// protocol, and the session is refused.
inline constexpr std::size_t kRowsMax = 4'096;
// Bytes of the hello frame and of a goodbye's reason. An unauthenticated peer can make this process
// parse only the hello frame. The connection is closed beyond.
inline constexpr std::size_t kHelloBytesMax = 4'096;
// Connections of one listener in a handshake at a time, each with a thread. The second number is
// for one source: an IPv4 address, a /64 of IPv6, or a user at the local socket. Others wait.
inline constexpr std::size_t kHalfOpenMax = 64;
inline constexpr std::size_t kHalfOpenOfSourceMax = 16;
// Milliseconds for which a connection in a handshake keeps its place while others wait. Then the
// oldest ones are closed, as many as wait.
inline constexpr int kHalfOpenGraceMs = 1'000;
// Connections of one listener, at a time, of which the first bytes prove a ticket.
inline constexpr std::size_t kTicketHandshakesMax = 64;
// Accepted connections of one source that have sent nothing yet. The oldest is closed beyond.
inline constexpr std::size_t kSilentOfSourceMax = 256;
// Connections of one source that have sent something and wait for a handshake. Beyond the first
// number random ones are closed, with growing probability. The second number is the maximum.
inline constexpr std::size_t kWaitingOfSourceSoft = 256, kWaitingOfSourceMax = 512;
// Such connections of one listener, from all sources. Beyond, the source with the most loses its
// oldest.
inline constexpr std::size_t kWaitingConnectionsMax = 1'024;

// The log and bulk connections of one session together. The attach is refused beyond.
inline constexpr std::size_t kConnectionsMax = 16;
// Text within a control message (a reason, a name). We cut our own longer texts. A longer text from
// a peer is a protocol error.
inline constexpr std::size_t kTextBytesMax = 1'024;
// GPUs in a listing. Further GPUs of a server are not listed. A peer that sends more does not speak
// our protocol.
inline constexpr std::size_t kListedGpusMax = 1'024;
// GPU models in a grant. Further models of a lease are not named. A peer that sends more does not
// speak our protocol.
inline constexpr std::size_t kModelsMax = 8;
// Bytes of a listing of kListedGpusMax GPUs. A protocol error beyond.
inline constexpr std::size_t kListingBytesMax = std::size_t{1} << 20;
// Processes that may ever attach to one lease, and those of which some connections have not come
// yet. An attach is refused beyond.
inline constexpr std::size_t kSessionsMax = std::size_t{1} << 20;
inline constexpr std::size_t kGatheringMax = 128;
// Connections of such sessions: of one lease, and of all leases of one user. The second number also
// counts connections of sessions that wait for their worker's start. Each is a descriptor of
// gpurund's. An attach is refused beyond.
inline constexpr std::size_t kGatheredOfLeaseMax = 256;
inline constexpr std::size_t kGatheredOfUserMax = 1'024;
// Requests that wait for GPUs of one server, and those of one user with a token. A lease is refused
// beyond.
inline constexpr std::size_t kWaitingMax = 1'024;
inline constexpr std::size_t kWaitingOfUserMax = 64;

// Seconds.
// For a peer to authenticate, from its first byte on, and later for each request to it. The
// connection is closed beyond.
inline constexpr int kHandshakeDeadlineS = 10;
// A peer that has sent nothing for this long sends a heartbeat.
inline constexpr int kHeartbeatS = 5;
// A peer from which nothing has come for this long, not even a heartbeat, is gone.
inline constexpr int kSilenceDeadlineS = 30;

}  // namespace gpurun::limits
