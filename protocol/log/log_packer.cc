// LogPacker: the sending end's history, and the decision when to use it.
#include "protocol/log/log_packer.h"

#include <lz4.h>

#include <cstring>

namespace gpurun::protocol {

// The codec refers back to bytes that must not change, so it reads a copy.
struct LogPacker::Codec {
  LZ4_stream_t stream;
  std::unique_ptr<std::byte[]> room{std::make_unique_for_overwrite<std::byte[]>(kHistoryRoomBytes)};
  std::size_t end = 0;  // Of the history, from the room's start.
  std::unique_ptr<std::byte[]> block{
      std::make_unique_for_overwrite<std::byte[]>(kPackedRecordsBytesMax + 8)};

  Codec() { LZ4_initStream(&stream, sizeof stream); }

  // 0: the result would be larger than `most`. Then the history is lost.
  std::size_t pack(std::span<const ByteView> parts, std::size_t bytes, std::size_t most) {
    if (kHistoryRoomBytes - end < bytes) {
      end = static_cast<std::size_t>(LZ4_saveDict(&stream, reinterpret_cast<char*>(room.get()),
                                                  static_cast<int>(kHistoryBytes)));
    }
    std::byte* const start = room.get() + end;
    for (const ByteView part : parts) {
      std::memcpy(room.get() + end, part.data(), part.size());
      end += part.size();
    }
    const int packed = LZ4_compress_fast_continue(
        &stream, reinterpret_cast<const char*>(start), reinterpret_cast<char*>(block.get()),
        static_cast<int>(bytes), static_cast<int>(most), 1);
    if (packed > 0) return static_cast<std::size_t>(packed);
    LZ4_initStream(&stream, sizeof stream);  // After a failure only this is allowed.
    end = 0;
    return 0;
  }
};

LogPacker::LogPacker(bool enabled) : enabled_(enabled) {}
LogPacker::~LogPacker() = default;

bool LogPacker::compresses() const noexcept {
  if (!enabled_ || !pace_.known()) return false;
  const double wire = pace_.ns_per_byte();
  return wire >= kSlowNs && worth_.is_worthwhile(wire);
}

LogPacker::Packed LogPacker::pack(std::span<const ByteView> parts, std::size_t bytes) {
  if (bytes < kBytesMin || bytes > kPackedRecordsBytesMax) return {};
  if (!compresses()) {
    worth_.passed_over();
    return {};
  }
  if (!worth_.is_due()) return {};
  if (codec_ == nullptr) codec_ = std::make_unique<Codec>();
  const Clock::time_point start = Clock::now();
  const auto most =
      static_cast<std::size_t>(static_cast<double>(bytes) * CodecWorth::kWorthwhileShare);
  const std::size_t packed = codec_->pack(parts, bytes, most);
  const Clock::duration took =
      codec_time_ != Clock::duration{} ? codec_time_ : Clock::now() - start;
  if (packed == 0) {
    worth_.gave_up(bytes, took);
    return {};
  }
  worth_.compressed(bytes, packed, took);
  Packed result;
  result.packed = true;
  result.head.bytes = static_cast<std::uint32_t>(bytes);
  result.head.padding = static_cast<std::uint32_t>((8 - packed % 8) % 8);
  std::memset(codec_->block.get() + packed, 0, result.head.padding);
  result.block = ByteView(codec_->block.get(), packed + result.head.padding);
  return result;
}

}  // namespace gpurun::protocol
