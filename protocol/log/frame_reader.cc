// FrameReader: one buffer that grows up to the largest frame, and keeps what follows a frame.
#include "protocol/log/frame_reader.h"

#include <cstring>
#include <utility>

namespace gpurun::protocol {
namespace {
// Large enough for several frames of a busy client. Grows to the bound when needed.
constexpr std::size_t kBufferBytes = (std::size_t{256} << 10) + kFrameHeaderBytes;
}  // namespace

FrameReader::FrameReader()
    : buffer_(std::make_unique_for_overwrite<std::byte[]>(kBufferBytes)),
      buffer_bytes_(kBufferBytes) {}

Result<bool> FrameReader::next(Frame* frame) {
  const std::size_t held = end_ - begin_;
  if (held < kFrameHeaderBytes) {
    wanted_ = kFrameHeaderBytes - held;
    return false;
  }
  const ByteView rest(buffer_.get() + begin_, held);
  Result<FrameHeader> header = parse_frame_header(rest);
  if (!header.ok()) return header.status();
  // A foreign peer's frames may end anywhere. Our own stay 8-aligned for the records.
  const std::size_t whole = kFrameHeaderBytes + header->payload_bytes;
  if (held < whole) {
    wanted_ = whole - held;
    return false;
  }
  if (begin_ % 8 != 0) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, held);
    begin_ = 0;
    end_ = held;
  }
  frame->header = *header;
  frame->payload = ByteView(buffer_.get() + begin_ + kFrameHeaderBytes, header->payload_bytes);
  begin_ += whole;
  wanted_ = kFrameHeaderBytes;
  return true;
}

MutableBytes FrameReader::space() {
  if (begin_ == end_) {
    begin_ = end_ = 0;
  } else if (buffer_bytes_ - end_ < wanted_) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  // wanted_ is bounded by parse_frame_header, so a peer cannot make this grow past one frame.
  if (buffer_bytes_ - end_ < wanted_) {
    auto larger = std::make_unique_for_overwrite<std::byte[]>(end_ + wanted_);
    std::memcpy(larger.get(), buffer_.get(), end_);
    buffer_ = std::move(larger);
    buffer_bytes_ = end_ + wanted_;
  }
  return MutableBytes(buffer_.get() + end_, buffer_bytes_ - end_);
}

}  // namespace gpurun::protocol
