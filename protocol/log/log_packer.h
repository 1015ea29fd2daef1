// LogPacker: decides for each frame of records whether it goes packed (packed_records.h), and packs
// it. It packs only where the connection was measured slower than the codec (link_pace.h,
// codec_worth.h, docs/adr/0031).
//
// One thread at a time: the one that sends on the connection.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>

#include "base/bytes.h"
#include "protocol/log/codec_worth.h"
#include "protocol/log/link_pace.h"
#include "protocol/log/packed_records.h"

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
    bool packed = false;  // False: the records go unchanged.
    PackedRecordsHead head;
    ByteView block;  // With its padding. Valid until the next call.
  };
  // `parts`, concatenated, are `bytes` of whole records.
  Packed pack(std::span<const ByteView> parts, std::size_t bytes);

  // True when the caller should measure a send of `wire_bytes`. That costs two reads of the clock.
  bool wants_time(std::size_t wire_bytes) const noexcept {
    return enabled_ && (wire_bytes >= LinkPace::kTellingBytes || compresses());
  }
  void sent(std::size_t wire_bytes, Clock::duration took) noexcept { pace_.sent(wire_bytes, took); }

  // For tests: the codec's time for each frame, in place of a measurement.
  void set_codec_time(Clock::duration per_frame) noexcept { codec_time_ = per_frame; }

  // About the most bytes that wait in a socket. Bytes there can no longer be packed, and what a
  // socket takes at once says nothing about the link.
  static constexpr std::size_t kUnsentBytes = std::size_t{64} << 10;
  // Fewer bytes go unchanged, because they fill a packet either way.
  static constexpr std::size_t kBytesMin = 512;
  // In nanoseconds for a byte. A faster send is not slowed by a link of a few Gbit/s or less. A
  // worker that is slow to take the calls may slow it, or nothing.
  static constexpr double kSlowNs = 4;

 private:
  struct Codec;

  bool compresses() const noexcept;

  const bool enabled_;
  Clock::duration codec_time_{};
  LinkPace pace_;
  CodecWorth worth_;
  std::unique_ptr<Codec> codec_;  // Made at its first use.
};

}  // namespace gpurun::protocol
