// FrameReader: cuts the byte stream of a log connection into frames. It has no connection of its
// own: its owner receives into space() and reports how much came.
//
// One thread. The frames that it returns are in private memory, which the peer cannot change.
#pragma once

#include <cstddef>
#include <memory>

#include "base/bytes.h"
#include "base/result.h"
#include "protocol/log/frame.h"

namespace gpurun::protocol {

struct Frame {
  FrameHeader header;
  ByteView payload;  // 8-aligned. Valid until the reader's next space().
};

class FrameReader {
 public:
  FrameReader();

  // True: `*frame` is a whole frame. False: wanted() more bytes are missing. kProtocol: not a
  // stream of frames. This is final.
  Result<bool> next(Frame* frame);

  // Where to receive. Never empty, and at least wanted() bytes. Invalidates earlier payloads.
  MutableBytes space();
  std::size_t wanted() const noexcept { return wanted_; }
  void filled(std::size_t byte_count) noexcept { end_ += byte_count; }
  // True when no byte of a further frame has come yet.
  bool drained() const noexcept { return begin_ == end_; }

 private:
  // Uninitialized at first, so that a reader of short frames touches few of its pages.
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t buffer_bytes_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t wanted_ = kFrameHeaderBytes;
};

}  // namespace gpurun::protocol
