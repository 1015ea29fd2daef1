// Feature bits: what a side can do beyond what the protocol's version promises, so that a new thing
// needs no new version where the other side can live without it.
//
// Each side says which bits it offers and which of them it requires of the other. In force is what
// both offer. A bit that this side does not know is ignored, unless the other requires it: then the
// session is refused with a sentence that says which side to update.
//
// Numbers are for ever: a bit is never reused, a new one is added at the end, with a line in
// feature_name(). Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "protocol/proof.h"

namespace gpurun::protocol {

enum class Feature : std::uint8_t {
  // Code images are named by SHA-256 and sent only where the server has not got them
  // (module.capnp).
  kImagesByHash = 0,
  // The worker tells the end of a record that carries kFlagTell (record.h).
  kPushedCompletions = 1,
  // The worker gives memory to windows of device addresses, which the client cuts up by itself
  // (device_memory.h).
  kDeviceWindows = 2,
  // A session outlives a cut of its connections. Not offered yet.
  kResume = 3,
  // A copy to the device takes its turn in the stream before its bytes are sent (kFlagBulkOnDemand
  // of Form::kCopyIn, record.h).
  kCopiesInTurn = 4,
  // A control link may be proved by a user's token (token.h). Required by a client that has one.
  kUserTokens = 5,
  // Calls of a context may pass the queues of its streams (kFlagPassesStreams, record.h).
  kPassedStreams = 6,
  // Copies of boxes, and to and from CUDA arrays (kFlagBox, record.h).
  kBoxCopies = 7,
  // The worker counts what it does, for the client to ask (observation.h). Offered by a client that
  // will.
  kCounting = 8,
  // The worker's answer to an attach brings a window with first credits (Accept::credits).
  kFirstCredits = 9,
  // Chunks of bulk may come packed (kChunkPacked, packed_chunk.h).
  kPackedChunks = 10,
  // Bulk connections may join a session that runs (Joined, control.h).
  kLateBulk = 11,
  // A wait for an event may be a barrier in a stream that nobody awaits, and what is ended behind
  // such a barrier stays until it is over (kFlagBarrier, record.h).
  kEarlyEventWaits = 12,
  // Records may come packed (kPackedRecords, packed_records.h).
  kPackedRecords = 13,
  // The bytes of a copy from the device may come over several connections (CopyPayload, record.h),
  // and chunks say behind which transfers they belong (BulkHeader::watermark, frame.h).
  kSpreadCopies = 14,
  // The bytes of a small copy from the device may come on the log channel (ReplyKind::kCopyBytes,
  // record.h). With kSpreadCopies only, by which chunks know what they stand behind.
  kBytesInItems = 15,
  // A record may have a free's place on the device and nothing else (ReturnKind::kOrder,
  // device_memory.h).
  kFreesInOrder = 16,
};
inline constexpr unsigned kFeatureCount = 17;

constexpr std::uint64_t feature_bit(Feature feature) {
  return std::uint64_t{1} << static_cast<unsigned>(feature);
}

struct Features {
  std::uint64_t offered = 0;
  std::uint64_t required = 0;  // Part of `offered` in ours; a stranger may say anything.

  constexpr bool offers(Feature feature) const { return (offered & feature_bit(feature)) != 0; }
  friend bool operator==(const Features&, const Features&) = default;
};

// What this build says. A client knows no other way to load a code image, waits for the completions
// that it has asked for (kFlagTell), lets copies take their turn and other calls pass the streams,
// and copies boxes.
constexpr Features our_features(Sender who) {
  constexpr std::uint64_t kNeeded =
      feature_bit(Feature::kImagesByHash) | feature_bit(Feature::kPushedCompletions) |
      feature_bit(Feature::kCopiesInTurn) | feature_bit(Feature::kPassedStreams) |
      feature_bit(Feature::kBoxCopies);
  constexpr std::uint64_t kOffered =
      kNeeded | feature_bit(Feature::kDeviceWindows) | feature_bit(Feature::kUserTokens) |
      feature_bit(Feature::kFirstCredits) | feature_bit(Feature::kPackedChunks) |
      feature_bit(Feature::kLateBulk) | feature_bit(Feature::kEarlyEventWaits) |
      feature_bit(Feature::kPackedRecords) | feature_bit(Feature::kSpreadCopies) |
      feature_bit(Feature::kBytesInItems) | feature_bit(Feature::kFreesInOrder);
  constexpr std::uint64_t kServersToo = feature_bit(Feature::kCounting);
  if (who == Sender::kServer) return {kOffered | kServersToo, 0};
  return {kOffered, kNeeded};
}

// "loading code images by their hash"; "feature 17" for a bit that this build does not know.
std::string feature_name(unsigned bit);

// The bits in force: what both offer. `peer` is "server" or "client": who said `theirs`.
// kRefused: one requires what the other does not offer.
Result<std::uint64_t> agree_on_features(const Features& ours, const std::string& our_release,
                                        const Features& theirs, const std::string& their_release,
                                        const char* peer);

}  // namespace gpurun::protocol
