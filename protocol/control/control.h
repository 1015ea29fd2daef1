// Control frames: the messages on a connection before it carries calls.
//
//   magic u32 | payload bytes u32 | tag bytes u32 (0 or 32) | payload | tag
//
// Integers are little-endian. The payload is one ControlMessage (session.capnp) in Cap'n Proto's
// stream form, and the tag is its frame_tag(). A receiver reads exactly the frame and no byte more,
// because it passes the connection on afterwards.
//
// Messages are decoded into plain structures at once. Only decode() meets Cap'n Proto's exceptions,
// and text and data are bounded. Any thread.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/deadline.h"
#include "base/result.h"
#include "protocol/auth/proof.h"
#include "protocol/auth/token.h"
#include "protocol/calls/device_memory.h"
#include "protocol/control/features.h"
#include "protocol/control/version.h"
#include "protocol/limits.h"

namespace gpurun::protocol {

using limits::kConnectionsMax;
using limits::kListedGpusMax;
using limits::kListingBytesMax;
using limits::kTextBytesMax;
inline constexpr std::size_t kControlHeaderBytes = 12;

struct Version {
  std::uint32_t protocol = kVersion;
  std::string release = kRelease;
  Features features = {};
};
// The version that this build sends.
inline Version our_version(Sender who) { return {kVersion, kRelease, our_features(who)}; }

struct Hello {
  Version version;
  Nonce nonce{};
  std::optional<TokenId> token = {};  // Absent: the server's own secret.
};
struct TokenProof {
  Key masked{};  // mask_token().
};
struct Challenge {
  Version version;
  Nonce nonce{};  // Zeros inside TLS, where the channel's exporter replaces it (proof.h).
};
struct LeaseRequest {
  std::uint32_t devices = 0;
  std::uint64_t wait_milliseconds = 0;
  // As the client claims. The text is bounded and has no control characters.
  std::string host = {};
  std::string program = {};
  std::uint32_t pid = 0;
};
struct Queued {
  std::uint32_t ahead = 0;
  std::uint32_t lacking = 0;  // GPUs that must become free for this request alone.
  std::uint32_t gpus = 0;     // The server's GPUs. 0: unknown.
};
struct Grant {
  Id lease{};
  Id ticket{};
  Nonce challenge{};
  std::uint32_t devices = 0;
  std::vector<std::string> models = {};  // Each once, at most limits::kModelsMax.
  bool emulated = false;                 // The devices run PTX only.
  // The name at which processes of the server's machine may attach (local_address.h). Empty: they
  // may not.
  std::string local = {};
  std::string reached_at = {};  // "host:port", the server's end of the control link.
};
struct Refused {
  std::string reason;
  bool for_good = false;  // Waiting or asking again changes nothing.
};
struct Attach {
  Version version;
  Sha256Digest rows{};
  Id lease{};
  Id ticket{};
  Id session{};
  Nonce nonce{};
  std::uint16_t index = 0;  // Below count.
  // 2 to kConnectionsMax. For a bulk connection that joins a running session: its index plus one.
  std::uint16_t count = 0;
};
// The worker's answer to a bulk connection that joins.
struct Joined {
  std::uint32_t cores = 0;  // Processors that the worker may use.
};
struct RowHash {
  std::uint16_t opcode = 0;
  std::uint64_t hash = 0;  // driver_abi::Row::hash
};
struct Accept {
  std::string release;
  std::int32_t driver_version = 0;
  Bytes snapshot;
  // Empty: the tables are equal. At most limits::kRowsMax. Opcodes are ascending, from 1, below
  // limits::kRowsMax.
  std::vector<RowHash> rows = {};
  Features features = {};
  std::optional<CreditGrant> credits = {};  // Of the session's only device.
  // Rows that the worker's driver cannot serve. Opcodes ascending, from 1, below limits::kRowsMax.
  std::vector<std::uint16_t> unserved = {};
};

struct WorkerEnded {
  Id session{};
  std::string how;  // "signal 11 (Segmentation fault)".
};
struct ListRequest {};
struct ListedGpu {
  std::string name;
  std::uint64_t memory_bytes = 0;
  std::string holder;  // "10.0.0.2:51234". Empty: the GPU is free.
  std::uint64_t held_seconds = 0;
  std::uint32_t workers = 0;
  std::string user = {};  // The holder's. kOperator for the server's own secret.
  // As the client claims. "" and 0: unknown.
  std::string host = {};
  std::string program = {};
  std::uint32_t pid = 0;
  std::int64_t since = 0;     // Seconds since 1970.
  std::uint32_t sharing = 0;  // How many of the workers share memory with their client.
  bool encrypted = false;
  std::uint32_t lease = 0;  // From 1. The GPUs of one lease have one number.
  std::optional<std::uint64_t> used_bytes = {};
  std::uint32_t over_rdma = 0;          // How many of the workers use RDMA.
  std::uint32_t over_rdma_and_tcp = 0;  // How many of these use TCP, too.
  std::string rdma_ports = {};          // "mlx5_0:1 to mlx5_1:1", the server's port first.
  std::string numa_nodes = {};          // On which the workers run. Empty: everywhere.
};
struct Listing {
  std::string release;
  std::uint32_t waiting = 0;
  std::vector<ListedGpu> gpus;  // At most kListedGpusMax.
  // What the daemon itself holds.
  std::uint32_t leases = 0;  // Active leases. Each has one ticket.
  std::uint32_t gathering = 0;
  std::uint32_t workers = 0;
  std::uint32_t half_open = 0;
  std::string confinement;  // The active confinement of workers, in words (docs/security.md).
  std::uint32_t spare_workers = 0;  // Workers that wait for a lease.
  std::int64_t now = 0;             // The server's clock, in seconds since 1970. 0: unknown.
};

using ControlMessage = std::variant<Hello, Challenge, LeaseRequest, Queued, Grant, Refused, Attach,
                                    Accept, WorkerEnded, ListRequest, Listing, TokenProof, Joined>;

// Converts a message to a frame's payload and back. kProtocol: not a message, or out of bounds.
// From a Hello, Challenge or Attach of another protocol version, only `version` is reliable.
Bytes encode(const ControlMessage& message);
Result<ControlMessage> decode(ByteView payload);

// A whole frame. `tag` may be absent.
Bytes control_frame(ByteView payload, const std::optional<Tag>& tag);

struct ControlHeader {
  std::size_t payload_bytes = 0;
  std::size_t tag_bytes = 0;
};
// `bytes` are kControlHeaderBytes. kProtocol: not a control frame, or a payload over
// `payload_bytes_max`.
Result<ControlHeader> parse_control_header(ByteView bytes, std::size_t payload_bytes_max);

struct ControlFrame {
  Bytes payload;
  std::optional<Tag> tag;
};

// Success when both versions are the same and neither end requires a feature that the other lacks
// (protocol/control/features.h). Otherwise an error such as "the server speaks protocol 2 (gpurun
// 0.2.0), this client protocol 1 (gpurun 0.1.0): update the client". `peer`, "server" or "client",
// is the end that sent `theirs`.
Status check_version(const Version& theirs, const char* peer);

// Sends and receives over any type like transport::Connection.
template <typename Connection>
Status send_control(Connection& connection, const ControlMessage& message, Deadline deadline) {
  const Bytes frame = control_frame(encode(message), std::nullopt);
  const ByteView parts[] = {ByteView(frame)};
  return connection.send(parts, deadline);
}

template <typename Connection>
Status send_control(Connection& connection, const ControlMessage& message, const Key& key,
                    Sender sender, std::uint64_t counter, Deadline deadline) {
  const Bytes payload = encode(message);
  const Bytes frame = control_frame(payload, frame_tag(key, sender, counter, payload));
  const ByteView parts[] = {ByteView(frame)};
  return connection.send(parts, deadline);
}

template <typename Connection>
Result<ControlFrame> receive_control(Connection& connection, std::size_t payload_bytes_max,
                                     Deadline deadline) {
  std::array<std::byte, kControlHeaderBytes> head;
  Result<std::size_t> got = connection.receive(head, head.size(), deadline);
  if (!got.ok()) return got.status();
  const Result<ControlHeader> header = parse_control_header(head, payload_bytes_max);
  if (!header.ok()) return header.status();
  ControlFrame frame;
  frame.payload.resize(header->payload_bytes);
  got = connection.receive(frame.payload, frame.payload.size(), deadline);
  if (!got.ok()) return got.status();
  if (header->tag_bytes == 0) return frame;
  Tag tag;
  got = connection.receive(mutable_bytes(tag.data(), tag.size()), tag.size(), deadline);
  if (!got.ok()) return got.status();
  frame.tag = tag;
  return frame;
}

// True when the frame carries the tag for `key`, `sender` and `counter`.
bool proved(const ControlFrame& frame, const Key& key, Sender sender, std::uint64_t counter);

}  // namespace gpurun::protocol
