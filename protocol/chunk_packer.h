// ChunkPacker: decides for each chunk that goes out over one connection how it goes: as it is,
// without its pages of zeros, or compressed where the connection is slower than the codec.
//
// Both are measured: what a send() takes of wire bytes in what time (link_pace.h), and what the
// codec makes of bytes in what time (codec_worth.h; docs/adr/0028).
//
// One thread at a time: who sends on the connection.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "protocol/codec_worth.h"
#include "protocol/link_pace.h"
#include "protocol/packed_chunk.h"

namespace gpurun::protocol {

class ChunkPacker {
 public:
  using Clock = std::chrono::steady_clock;

  // `enabled`: the peer knows packed chunks (Feature::kPackedChunks).
  explicit ChunkPacker(bool enabled) : enabled_(enabled) {}

  // The connection was measured slower than the codec: pack() may take its time.
  bool compresses() const noexcept {
    return enabled_ && pace_.known() && worth_.is_worthwhile(pace_.ns_per_byte());
  }

  struct Packed {
    bool packed = false;  // Else the chunk goes as it is.
    PackedHead head;
    std::span<const ByteView> parts;  // Behind the head.
    std::size_t bytes = 0;            // Of these.
  };
  // Parts of the chunk itself, or of memory of ours; until the next call. Somebody may write to the
  // chunk meanwhile: then what he writes arrives as it was or as it became, and all else as it is.
  Packed pack(ByteView chunk);
  // The send of so many bytes took so long.
  void sent(std::size_t wire_bytes, Clock::duration took) noexcept { pace_.sent(wire_bytes, took); }

  // For tests: what it takes the codec to need, in place of measuring.
  void set_codec_time(Clock::duration per_chunk) noexcept { codec_time_ = per_chunk; }

  // A smaller one goes as it is, and tells nothing of the connection.
  static constexpr std::size_t kChunkBytesMin = LinkPace::kTellingBytes;
  // An unused page saves its bytes and costs both sides a run of its own: a system call of the
  // receiver's, or an entry of the sender's.
  static constexpr std::size_t kZeroPagesPerRun = 2;

 private:
  Packed pack_sparse(ByteView chunk, std::uint64_t pages);
  Packed compress(ByteView chunk);

  const bool enabled_;
  Clock::duration codec_time_{};
  LinkPace pace_;
  CodecWorth worth_;
  std::array<ByteView, kPagesMax / 2 + 1> parts_;
  Bytes state_, block_, taken_;  // Of the codec; not before it is first used.
};

}  // namespace gpurun::protocol
