// ChunkPacker: decides for each chunk that goes out over one connection how it goes: as it is,
// without its pages of zeros, or compressed where the connection is slower than the codec.
//
// Both are measured: what a send() takes of wire bytes in what time, and what the codec makes of
// bytes in what time. Compressing is tried when the connection is slow enough that even the codec's
// worst case costs little beside it, less and less often where nothing came of it (docs/adr/0028).
//
// One thread at a time: who sends on the connection.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>

#include "base/bytes.h"
#include "protocol/packed_chunk.h"

namespace gpurun::protocol {

class ChunkPacker {
 public:
  using Clock = std::chrono::steady_clock;

  // `enabled`: the peer knows packed chunks (Feature::kPackedChunks).
  explicit ChunkPacker(bool enabled) : enabled_(enabled) {}

  // The connection was measured slower than the codec: pack() may take its time.
  bool compresses() const noexcept;

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
  void sent(std::size_t wire_bytes, Clock::duration took) noexcept;

  // For tests: what it takes the codec to need, in place of measuring.
  void set_codec_time(Clock::duration per_chunk) noexcept { codec_time_ = per_chunk; }

  // A smaller one goes as it is, and tells nothing of the connection.
  static constexpr std::size_t kChunkBytesMin = 16384;
  // An unused page saves its bytes and costs both sides a run of its own: a system call of the
  // receiver's, or an entry of the sender's.
  static constexpr std::size_t kZeroPagesPerRun = 2;
  // Until the codec is measured it is taken to need so much for a byte.
  static constexpr double kCodecGuessNs = 1.6;
  // Compressed by less, a chunk goes as it is.
  static constexpr double kWorthwhileShare = 15.0 / 16;
  // Chunks between two trials where compressing is of no use: so many on average at most, and never
  // twice as many. Not the same number each time, for chunks of two kinds may come in turns.
  static constexpr unsigned kTrialEveryMax = 64;
  // The time of a send counts for less with each byte behind it: by half or more after so many.
  // The slower of the two is believed: what a socket's buffer takes at once says nothing of the
  // link, and one that was fast is soon found slow.
  static constexpr double kSoonBytes = 1 << 20, kLateBytes = 8 << 20;

 private:
  // Nanoseconds a byte, of which later bytes count for more.
  struct Pace {
    double bytes = 0, ns = 0;
    void add(double of_bytes, double of_ns, double horizon) noexcept;
    double per_byte() const noexcept { return ns / bytes; }
  };

  Packed pack_sparse(ByteView chunk, std::uint64_t pages);
  double wire() const noexcept { return std::max(soon_.per_byte(), late_.per_byte()); }
  double left_of_a_byte() const noexcept;
  void wait_for_trial() noexcept;
  Packed compress(ByteView chunk);

  const bool enabled_;
  Clock::duration codec_time_{};
  Pace soon_, late_;
  // Sums that forget: each chunk weighs 7/8 of the one behind it.
  double codec_bytes_ = 0, codec_ns_ = 0, codec_out_ = 0;
  unsigned trial_every_ = 1, until_trial_ = 0, passed_over_ = 0;
  std::minstd_rand chance_;
  std::array<ByteView, kPagesMax / 2 + 1> parts_;
  Bytes state_, block_, taken_;  // Of the codec; not before it is first used.
};

}  // namespace gpurun::protocol
