// Feature bits: abilities of an end beyond those that the protocol's version promises. So a new
// ability needs no new version when the other end can do without it.
//
// Each end sends the bits that it offers, and which of them it requires of the other end. Active
// are the bits that both offer. An unknown bit is ignored, unless the other end requires it. Then
// the session is refused with a sentence that says which end to update.
//
// Numbers are fixed for ever. Never reuse a bit. Add new bits at the end, with a line in
// feature_name(). Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "protocol/auth/proof.h"

namespace gpurun::protocol {

enum class Feature : std::uint8_t {
  // Code images are named by SHA-256, and sent only when the server does not have them
  // (module.capnp).
  kImagesByHash = 0,
  // The worker reports the end of a record that carries kFlagTell (record.h).
  kPushedCompletions = 1,
  // The worker gives memory to windows of device addresses, in which the client allocates by itself
  // (device_memory.h).
  kDeviceWindows = 2,
  // A session outlives a cut of its connections. Not offered yet.
  kResume = 3,
  // A copy to the device takes its turn in the stream before its bytes are sent (kFlagBulkOnDemand
  // of Form::kCopyIn, record.h).
  kCopiesInTurn = 4,
  // A user's token may prove a control link (token.h). Required by a client that has a token.
  kUserTokens = 5,
  // Calls of a context may pass the queues of its streams (kFlagPassesStreams, record.h).
  kPassedStreams = 6,
  // Copies of boxes, and to and from CUDA arrays (kFlagBox, record.h).
  kBoxCopies = 7,
  // The worker counts what it does, and the client may ask for it (worker_statistics.h). Only a
  // client that will ask offers it.
  kCounting = 8,
  // The worker's answer to an attach brings a window with first credits (Accept::credits).
  kFirstCredits = 9,
  // Chunks of bulk may come packed (kChunkPacked, packed_chunk.h).
  kPackedChunks = 10,
  // Bulk connections may join a running session (Joined, control.h).
  kLateBulk = 11,
  // A posted wait for an event may be a barrier in its stream. Objects that are destroyed behind
  // such a barrier live until it is complete (kFlagBarrier, record.h).
  kEarlyEventWaits = 12,
  // Records may come packed (kPackedRecords, packed_records.h).
  kPackedRecords = 13,
  // The bytes of a copy from the device may come over several connections (CopyPayload, record.h).
  // Chunks then name the transfers that must be written before them (BulkHeader::watermark,
  // frame.h).
  kSpreadCopies = 14,
  // The bytes of a small copy from the device may come on the log connection
  // (ReplyKind::kCopyBytes, record.h). Only with kSpreadCopies, which orders chunks behind them.
  kBytesInItems = 15,
  // A record may order later calls as a free does, and do nothing else (ReturnKind::kOrder,
  // device_memory.h).
  kFreesInOrder = 16,
  // Within a machine, the worker maps host memory of the client at the client's addresses
  // (host_arena.h).
  kHostArena = 17,
  // The worker keeps a copy of host memory that the device reaches, and the ends exchange what
  // changes in it (host_mirror.h).
  kHostMirror = 18,
  // Processes of a lease share allocations by descriptors (shareable_handle.h).
  kShareableHandles = 19,
  // A connection may leave its shared memory while it runs, and enter it again
  // (transport/carrier/connection.h).
  kCarrierChanges = 20,
  // Behind the worker's answer, both ends say what they have for RDMA (transport/rdma/exchange.h).
  // Only an end offers it that has the consent of its owner.
  kFabric = 21,
  // The worker reads the bytes of large copies to the device out of the client's memory
  // (kFlagPulled, record.h). Only over RDMA.
  kPulledCopies = 22,
  // The worker writes the bytes of large copies from the device into the client's memory
  // (kFlagWritten, record.h). Only over RDMA.
  kWrittenResults = 23,
};
inline constexpr unsigned kFeatureCount = 24;

constexpr std::uint64_t feature_bit(Feature feature) {
  return std::uint64_t{1} << static_cast<unsigned>(feature);
}

struct Features {
  std::uint64_t offered = 0;
  std::uint64_t required = 0;  // A subset of `offered` in ours. An untrusted peer may send
                               // anything.

  constexpr bool offers(Feature feature) const { return (offered & feature_bit(feature)) != 0; }
  friend bool operator==(const Features&, const Features&) = default;
};

// The features of the sources. our_features() (version.h) returns those of this build. A client
// requires those without which it cannot work. It has no other way to load a code image, and waits
// for completions that it asked for (kFlagTell). It lets copies take their turn and calls pass the
// streams, and copies boxes.
constexpr Features features_of_sources(Sender who) {
  constexpr std::uint64_t kNeeded =
      feature_bit(Feature::kImagesByHash) | feature_bit(Feature::kPushedCompletions) |
      feature_bit(Feature::kCopiesInTurn) | feature_bit(Feature::kPassedStreams) |
      feature_bit(Feature::kBoxCopies);
  constexpr std::uint64_t kOffered =
      kNeeded | feature_bit(Feature::kDeviceWindows) | feature_bit(Feature::kUserTokens) |
      feature_bit(Feature::kFirstCredits) | feature_bit(Feature::kPackedChunks) |
      feature_bit(Feature::kLateBulk) | feature_bit(Feature::kEarlyEventWaits) |
      feature_bit(Feature::kPackedRecords) | feature_bit(Feature::kSpreadCopies) |
      feature_bit(Feature::kBytesInItems) | feature_bit(Feature::kFreesInOrder) |
      feature_bit(Feature::kHostArena) | feature_bit(Feature::kHostMirror) |
      feature_bit(Feature::kShareableHandles) | feature_bit(Feature::kCarrierChanges) |
      feature_bit(Feature::kPulledCopies) | feature_bit(Feature::kWrittenResults);
  constexpr std::uint64_t kServersToo = feature_bit(Feature::kCounting);
  if (who == Sender::kServer) return {kOffered | kServersToo, 0};
  return {kOffered, kNeeded};
}

// "loading code images by their hash", or "feature 17" for a bit that this build does not know.
std::string feature_name(unsigned bit);

// Returns the active bits: those that both ends offer. `peer`, "server" or "client", is the end
// that sent `theirs`. kRefused: one end requires a feature that the other does not offer.
Result<std::uint64_t> agree_on_features(const Features& ours, const std::string& our_release,
                                        const Features& theirs, const std::string& their_release,
                                        const char* peer);

}  // namespace gpurun::protocol
