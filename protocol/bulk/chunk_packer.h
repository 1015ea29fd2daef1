// ChunkPacker: chooses how each chunk goes out over one connection. It goes unchanged, without its
// pages of zeros, or compressed where the connection is slower than the codec.
//
// Two measurements decide: the time that a send() takes for its bytes (link_pace.h), and the time
// and yield of the codec (codec_worth.h, docs/adr/0028).
//
// One thread at a time: the one that sends on the connection.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "protocol/bulk/packed_chunk.h"
#include "protocol/log/codec_worth.h"
#include "protocol/log/link_pace.h"

namespace gpurun::protocol {

class ChunkPacker {
 public:
  using Clock = std::chrono::steady_clock;

  // `enabled`: the peer knows packed chunks (Feature::kPackedChunks).
  explicit ChunkPacker(bool enabled) : enabled_(enabled) {}

  // True when the connection was measured slower than the codec, so that pack() may take time.
  bool compresses() const noexcept {
    return enabled_ && pace_.known() && worth_.is_worthwhile(pace_.ns_per_byte());
  }

  struct Packed {
    bool packed = false;  // False: the chunk goes unchanged.
    PackedHead head;
    std::span<const ByteView> parts;  // Behind the head.
    std::size_t bytes = 0;            // Size of `parts`.
  };
  // Returns parts of the chunk or of this object's memory, valid until the next call. The program
  // may write to the chunk meanwhile. Each byte that it writes then arrives in its old or new
  // state, and all other bytes arrive unchanged.
  Packed pack(ByteView chunk);
  // A send of `wire_bytes` took `took`.
  void sent(std::size_t wire_bytes, Clock::duration took) noexcept { pace_.sent(wire_bytes, took); }

  // For tests: the codec's time for each chunk, in place of a measurement.
  void set_codec_time(Clock::duration per_chunk) noexcept { codec_time_ = per_chunk; }

  // A smaller chunk goes unchanged, because it says nothing about the connection.
  static constexpr std::size_t kChunkBytesMin = LinkPace::kTellingBytes;
  // An omitted page saves its bytes and may add a run. Each run costs the receiver a system call,
  // or the sender an entry.
  static constexpr std::size_t kZeroPagesPerRun = 2;

 private:
  Packed pack_sparse(ByteView chunk, std::uint64_t pages);
  Packed compress(ByteView chunk);

  const bool enabled_;
  Clock::duration codec_time_{};
  LinkPace pace_;
  CodecWorth worth_;
  std::array<ByteView, kPagesMax / 2 + 1> parts_;
  Bytes state_, block_, taken_;  // The codec's. Allocated at its first use.
};

}  // namespace gpurun::protocol
