// LogPacker: decides for each frame of records whether it goes packed (packed_records.h), and packs
// it: where the connection was measured slower than the codec, and only there (link_pace.h,
// codec_worth.h; docs/adr/0031).
//
// One thread at a time: who sends on the connection.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>

#include "base/bytes.h"
#include "protocol/codec_worth.h"
#include "protocol/link_pace.h"
#include "protocol/packed_records.h"

namespace gpurun::protocol {

class LogPacker {
 public:
  using Clock = std::chrono::steady_clock;

  // `enabled`: the peer knows packed records (Feature::kPackedRecords).
  explicit LogPacker(bool enabled);
  ~LogPacker();
  LogPacker(const LogPacker&) = delete;
  LogPacker& operator=(const LogPacker&) = delete;

  struct Packed {
    bool packed = false;  // Else the records go as they are.
    PackedRecordsHead head;
    ByteView block;  // With its padding; ours, until the next call.
  };
  // `parts`, one after the other, are `bytes` of whole records.
  Packed pack(std::span<const ByteView> parts, std::size_t bytes);

  // Whether the time of a send of so many bytes is wanted: it costs two looks at the clock.
  bool wants_time(std::size_t wire_bytes) const noexcept {
    return enabled_ && (wire_bytes >= LinkPace::kTellingBytes || compresses());
  }
  void sent(std::size_t wire_bytes, Clock::duration took) noexcept { pace_.sent(wire_bytes, took); }

  // For tests: what it takes the codec to need, in place of measuring.
  void set_codec_time(Clock::duration per_frame) noexcept { codec_time_ = per_frame; }

  // So much, about, waits in a socket at most until it goes out: what waits there can be packed no
  // more, and what it takes at once says nothing of the link.
  static constexpr std::size_t kUnsentBytes = std::size_t{64} << 10;
  // Fewer go as they are: they fill a packet either way.
  static constexpr std::size_t kBytesMin = 512;
  // A send that takes less time for a byte is not held up by a link of a few Gbit/s at most, but by
  // a worker that takes its time for the calls, or by nothing.
  static constexpr double kSlowNs = 4;

 private:
  struct Codec;

  bool compresses() const noexcept;

  const bool enabled_;
  Clock::duration codec_time_{};
  LinkPace pace_;
  CodecWorth worth_;
  std::unique_ptr<Codec> codec_;  // Not before it is first used.
};

}  // namespace gpurun::protocol
