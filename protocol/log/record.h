// Record: one call in the command log. Reply item: a message of the worker about calls.
//
// A record has a fixed header and a payload. Payloads of hot calls have the fixed layouts below.
// Everything else is a Cap'n Proto message (form kCall, protocol/calls). The header alone gives the
// call's order, what must have happened before it may be issued, and whether a client thread waits
// for it. The issue queues never read a payload.
//
// Integers are little-endian. Records and replies are multiples of 8 bytes and start 8-aligned
// within their frame. Everything read from a peer is first copied, and then the copy is checked.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "protocol/limits.h"

namespace gpurun::protocol {

// Layout of a record's payload. Numbers are fixed for ever.
enum class Form : std::uint8_t {
  kCall = 1,         // Cap'n Proto (protocol/calls).
  kLaunch = 2,       // LaunchPayload, parameter block, attributes.
  kCopyInline = 3,   // CopyPayload, then the bytes, host to device: at most
                     // limits::kInlineCopyInBytesMax.
  kCopyIn = 4,       // CopyPayload: host to device. The bytes come as transfer `bulk`.
  kCopyOut = 5,      // CopyPayload: device to host. The bytes go as transfer `bulk`. When `bulk` is
                     // 0, they go in the reply (kFlagFence, at most limits::kInlineBytesMax).
  kCopyDevice = 6,   // CopyPayload: device to device.
  kMemset = 7,       // MemsetPayload.
  kEventRecord = 8,  // EventPayload. The event is `subject`.
  kStreamWait = 9,   // EventPayload. The event is `subject`.
  kRaw = 10          // Bytes that only the opcode's handler understands.
};
inline constexpr std::uint8_t kFormMin = 1;
inline constexpr std::uint8_t kFormMax = 10;

// A call's place in the worker's issue queues. "Earlier" and "later" are log order. "Issued" means
// that the driver call was made (for kOrderedHost: has returned). When in doubt: kContext.
enum class Order : std::uint8_t {
  // Issued as soon as it is decoded. Only for calls that neither depend on queued calls nor affect
  // them: creation of streams and events, queries of devices.
  kImmediate = 1,
  // After the lane's earlier kLane calls and after the earlier users of `subject`. Event query,
  // event synchronise, elapsed time, event destroy. A change of an executable graph, its `subject`,
  // follows only the earlier users of that (docs/adr/0056).
  kLane = 2,
  // In the queue of `stream`. A context's legacy stream (0, 1) and blocking streams are issued in
  // log order among themselves, as CUDA orders them on the device.
  kStream = 3,
  // Issued after every earlier call of `context`, whatever its order. Every later call except
  // kImmediate waits until this one is issued. No call waits when the client waits for this one
  // (kFlagFence). `context` 0: all contexts.
  // For attribute setters and context synchronise. With kFlagPassesStreams: allocation, names,
  // queries. With kFlagBarrier (a copy between contexts) it follows every earlier call of all
  // contexts, and every later call of any context waits.
  kContext = 4,
  // As kContext towards earlier calls. Then it runs on the context's own thread, where it may
  // block. Only later kContext and kOrderedHost calls wait for its end.
  // For free, unload and destroy. With kFlagPassesStreams: load, unload behind complete work,
  // cuGraphDestroy, cuGraphDestroyNode. With kFlagBarrier it is a free that was answered early
  // (docs/adr/0038).
  // Then every later call of any context is issued after the earlier calls of `context`, and runs
  // on the device behind them.
  kOrderedHost = 5
};
inline constexpr std::uint8_t kOrderMin = 1;
inline constexpr std::uint8_t kOrderMax = 5;

// RecordHeader::flags.
inline constexpr std::uint16_t kFlagFence = 1;  // The client waits for a reply.
// The client answered this call early, although CUDA completes it before it returns. No later call,
// on any stream or context, starts on the device before this one is complete. A wait for a stream,
// or for an event that was recorded there, has the stream's order (docs/adr/0033, 0036).
// After such a wait, and after a free (docs/adr/0038), queries of its context wait until it is
// complete. So does the destruction of what work may need.
inline constexpr std::uint16_t kFlagBarrier = 2;
inline constexpr std::uint16_t kFlagWritesSubject = 4;  // Changes `subject`. Otherwise only reads
                                                        // it.
// kEventRecord: the client wants to know this record's end. So the worker sends one kEventDone for
// it without a query, whatever happens to the record.
inline constexpr std::uint16_t kFlagTell = 8;
// The record only offers its bulk. kOrderedHost: the client sends it if the worker asks by
// kChunkWanted. kCopyIn: the client sends it when the worker asks by kBytesWanted, because the
// stream has reached the copy. So the copy takes what earlier work leaves in the client's memory.
inline constexpr std::uint16_t kFlagBulkOnDemand = 16;
// kContext, kOrderedHost: waits for no stream's and no lane's calls. It waits only for earlier
// kContext calls of `context` (0: of all), and for kOrderedHost calls with this flag, of all
// contexts. For calls that do not affect queued work: allocation, loads, names, queries, the
// building of graphs, frees of a pool's memory.
inline constexpr std::uint16_t kFlagPassesStreams = 32;
// Form::kCopy...: copies a box, of which a side may be a CUDA array. The payload begins with
// BoxCopyPayload in place of CopyPayload.
inline constexpr std::uint16_t kFlagBox = 64;
// kCopyIn, with kFlagBulkOnDemand: a PulledSource follows the structure of the copy. The worker
// reads the bytes by RDMA, and then sends one kChunkReceipt for all of them. If it cannot, it asks
// for them by kBytesWanted (Feature::kPulledCopies, docs/adr/0048).
inline constexpr std::uint16_t kFlagPulled = 128;
// kCopyOut: a WrittenDestination follows the structure of the copy. The worker writes the bytes by
// RDMA, and then sends kChunkWritten. What it cannot write comes as chunks over the first bulk
// connection (Feature::kWrittenResults, docs/adr/0054).
inline constexpr std::uint16_t kFlagWritten = 256;
inline constexpr std::uint16_t kFlagsKnown = 511;

// Stream values that are not handles (cuda.h: CU_STREAM_LEGACY, CU_STREAM_PER_THREAD). NULL means
// legacy for the plain entry points.
inline constexpr std::uint64_t kStreamNull = 0;
inline constexpr std::uint64_t kStreamLegacy = 1;
inline constexpr std::uint64_t kStreamPerThread = 2;

struct RecordHeader {
  std::uint32_t bytes = 0;   // Of the whole record, padding included. At most kRecordBytesMax.
  std::uint16_t opcode = 0;  // driver_abi row.
  Form form = Form::kCall;
  Order order = Order::kContext;
  std::uint16_t flags = 0;
  std::uint16_t reserved_16 = 0;  // 0, as the other reserved fields.
  std::uint32_t lane = 0;
  std::uint64_t sequence = 0;  // 1, 2, 3, ... without gaps.
  std::uint64_t context = 0;   // Handle, 0 for calls without one.
  std::uint64_t stream = 0;    // Handle or one of the values above. kStream only.
  std::uint64_t subject = 0;   // Event or executable graph that the call uses as well, else 0.
  std::uint64_t bulk = 0;      // The transfer of its payload, else 0.
  std::uint64_t reserved_64 = 0;
  std::uint32_t payload_bytes = 0;  // Without padding. The payload follows the header.
  std::uint32_t reserved = 0;
};
static_assert(sizeof(RecordHeader) == 72);
inline constexpr std::size_t kRecordHeaderBytes = sizeof(RecordHeader);
inline constexpr std::size_t kRecordAlignment = 8;

constexpr std::size_t record_bytes(std::size_t payload_bytes) {
  return (kRecordHeaderBytes + payload_bytes + kRecordAlignment - 1) & ~(kRecordAlignment - 1);
}
inline constexpr std::size_t kRecordPayloadBytesMax = limits::kRecordBytesMax - kRecordHeaderBytes;

// cuLaunchKernel and its relatives. The parameter block follows the struct, then the attributes.
struct LaunchPayload {
  std::uint64_t function = 0;  // Function or kernel handle.
  std::uint32_t grid[3] = {1, 1, 1};
  std::uint32_t block[3] = {1, 1, 1};
  std::uint32_t shared_bytes = 0;
  std::uint32_t parameter_bytes = 0;  // At most kKernelParameterBytesMax. Laid out as the kernel's.
  std::uint32_t attribute_count = 0;  // LaunchAttribute each, at most kLaunchAttributesMax.
  std::uint32_t reserved = 0;
  std::uint64_t layout_hash = 0;  // Of the layout that the client packed by; 0 when the program
};                                // gave a packed block (`extra`).
static_assert(sizeof(LaunchPayload) == 56);
inline constexpr std::size_t kLaunchAttributesMax = 32;
// CUlaunchAttribute as in cuda.h: id, padding, 64-byte value. Handles inside are the client's. No
// default values: both ends have room for the maximum, and clearing it takes longer than a launch.
struct LaunchAttribute {
  std::uint32_t id;
  std::uint32_t reserved;
  std::byte value[64];
};
static_assert(sizeof(LaunchAttribute) == 72);
// Where the attributes start, from the start of the payload.
constexpr std::size_t launch_attributes_offset(std::size_t parameter_bytes) {
  return sizeof(LaunchPayload) + ((parameter_bytes + 7) & ~std::size_t{7});
}

struct CopyPayload {
  std::uint64_t destination = 0;  // Device address. kCopyOut: the number of connections over which
                                  // its bytes may come (Feature::kSpreadCopies), 0: over the first
                                  // one.
  std::uint64_t source = 0;       // Device address. kCopyIn, kCopyInline: 0.
  std::uint64_t bytes = 0;        // At most kBulkBytesMax.
};
static_assert(sizeof(CopyPayload) == 24);

// One side of a box copy, on the device.
struct BoxSide {
  std::uint64_t array = 0;  // Handle. 0: memory, at the address in CopyPayload.
  std::uint64_t x = 0;      // Bytes, lines and slices into the array. Memory: 0.
  std::uint64_t y = 0;
  std::uint64_t z = 0;
  std::uint64_t line_pitch = 0;   // Memory: bytes from line to line.
  std::uint64_t slice_lines = 0;  // Memory: lines from slice to slice.
};
static_assert(sizeof(BoxSide) == 48);

// A copy of `slices` times `lines` lines of `width` bytes. The bytes that travel (those of
// kCopyInline, or the transfer) are the box without gaps, copy.bytes in all. A side on the host is
// all zeros: `source` for kCopyIn and kCopyInline, `destination` for kCopyOut.
struct BoxCopyPayload {
  CopyPayload copy;
  std::uint64_t width = 0;
  std::uint64_t lines = 0;
  std::uint64_t slices = 0;
  BoxSide destination;
  BoxSide source;
};
static_assert(sizeof(BoxCopyPayload) == 144);

// Memory that the client lends to the worker's device (transport/remote_memory.h). A wrong value
// makes the read fail, and nothing else.
struct PulledSource {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;  // All bytes of the copy, at least limits::kPulledBytesMin.
  std::uint32_t key = 0;
  std::uint32_t in_turn = 0;  // 1: no byte may be read before the stream reaches the copy, because
                              // earlier work may still write there. 0: the worker may read at once.
};
static_assert(sizeof(PulledSource) == 24);

// Memory that the client lends to the worker's device for writing. A wrong value makes the write
// fail, and nothing else.
struct WrittenDestination {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;  // All bytes of the copy, at least limits::kPulledBytesMin.
  std::uint32_t key = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(WrittenDestination) == 24);

// Size of the structure at the start of a copy's payload. The bytes of kCopyInline, the
// PulledSource, or the WrittenDestination follow it.
constexpr std::size_t copy_payload_bytes(const RecordHeader& header) {
  return (header.flags & kFlagBox) != 0 ? sizeof(BoxCopyPayload) : sizeof(CopyPayload);
}

struct MemsetPayload {
  std::uint64_t destination = 0;
  std::uint64_t pitch = 0;   // Bytes from row to row. Ignored when height is 1.
  std::uint64_t width = 0;   // Elements.
  std::uint64_t height = 0;  // Rows. 1 for the one-dimensional calls.
  std::uint32_t value = 0;
  std::uint32_t element_bytes = 0;  // 1, 2 or 4.
};
static_assert(sizeof(MemsetPayload) == 40);

struct EventPayload {
  std::uint32_t flags = 0;  // As the program gave them.
  std::uint32_t reserved = 0;
};
static_assert(sizeof(EventPayload) == 8);

// A received and checked record, inside bytes that the caller owns.
struct RecordView {
  RecordHeader header;  // A copy.
  ByteView payload;     // header.payload_bytes of it, 8-aligned when the frame was.
};

// Takes the first record of `bytes`. Checks sizes, form, order and flags, and the sizes in the
// fixed layouts. The executor must check handles and addresses. kProtocol otherwise. `bytes` must
// be private memory that the peer can no longer write.
Result<RecordView> parse_record(ByteView bytes);

// The worker's messages. Items travel in kReplies frames, each with the next number of that
// direction.
enum class ReplyKind : std::uint8_t {
  kReply = 1,      // Answer to the fence `call_sequence`. Payload: its results.
  kCallError = 2,  // A call that the client answered early failed. Payload: none.
  kOutput = 3,  // Bytes that the device printed, for stdout. `subject` 1: the worker's own message.
  kEventDone = 4,  // The event `subject`, as recorded by `call_sequence`, is complete. With a
                   // `result`, the worker will not report that record's end, and the client must
                   // query it.
  // For graph nodes (protocol/calls/graph_host.h). `subject`: the operation. The client acts at the
  // watermark, when earlier copies out are in its memory.
  kHostTurn = 5,   // Payload: the turn, 8 bytes.
  kHostBytes = 6,  // Payload: the offset, 8 bytes, then the bytes.
  kHostGone = 7,
  kWorkDone = 8,     // The earlier work of the call's context is complete. `subject`: its ticket
                     // (protocol/calls/device_memory.h).
  kBytesWanted = 9,  // The stream has reached the kCopyIn `call_sequence` (kFlagBulkOnDemand). Once
                     // the client is at the watermark, it reads and sends transfer `subject`.
  kCopyBytes = 10    // Payload: all bytes of the kCopyOut with transfer `subject`, at most
                     // limits::kItemCopyBytesMax, in place of chunks (Feature::kBytesInItems).
                     // `watermark`: the number of their completion. They are written after earlier
                     // completions (BulkHeader, frame.h).
};
inline constexpr std::uint8_t kReplyKindMin = 1;
inline constexpr std::uint8_t kReplyKindMax = 10;
inline constexpr std::uint8_t kReplyFlagSticky = 1;  // kCallError, kReply: the context is lost.
inline constexpr std::uint8_t kReplyFlagErrors = 2;  // kOutput: for stderr, not for stdout.

struct ReplyHeader {
  std::uint32_t bytes = 0;  // Whole item, a multiple of 8, at most kReplyBytesMax.
  ReplyKind kind = ReplyKind::kReply;
  std::uint8_t flags = 0;
  std::uint16_t opcode = 0;  // Of the call it is about.
  std::uint32_t lane = 0;
  std::int32_t result = 0;     // CUresult.
  std::uint64_t sequence = 0;  // Of this direction: 1, 2, 3, ...
  std::uint64_t call_sequence = 0;
  std::uint64_t context = 0;    // Of the call. With kReplyFlagSticky: the lost one.
  std::uint64_t subject = 0;    // kEventDone, kWorkDone, kBytesWanted, kCopyBytes.
  std::uint64_t watermark = 0;  // Deliver after this many bulk completions (BulkHeader).
  std::uint32_t payload_bytes = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(ReplyHeader) == 64);
inline constexpr std::size_t kReplyHeaderBytes = sizeof(ReplyHeader);
inline constexpr std::size_t kReplyBytesMax = limits::kRecordBytesMax;
inline constexpr std::size_t kReplyPayloadBytesMax = kReplyBytesMax - kReplyHeaderBytes;

struct ReplyView {
  ReplyHeader header;
  ByteView payload;
};
Result<ReplyView> parse_reply(ByteView bytes);

constexpr std::size_t reply_bytes(std::size_t payload_bytes) {
  return (kReplyHeaderBytes + payload_bytes + 7) & ~std::size_t{7};
}

}  // namespace gpurun::protocol
