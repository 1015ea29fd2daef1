// FrameReader: cuts the byte stream of a log channel into frames. It knows no connection: its owner
// receives into space() and says how much came.
//
// One thread. What it hands out is private memory: the peer cannot change it any more.
#pragma once

#include <cstddef>
#include <memory>

#include "base/bytes.h"
#include "base/result.h"
#include "protocol/frame.h"

namespace gpurun::protocol {

struct Frame {
  FrameHeader header;
  ByteView payload;  // 8-aligned. Valid until the reader's next space().
};

class FrameReader {
 public:
  FrameReader();

  // True and `*frame` set: a whole frame is there. False: wanted() more bytes are missing.
  // kProtocol: the stream is no frame stream; final.
  Result<bool> next(Frame* frame);

  // Where to receive: never empty, at least wanted() bytes. Ends the life of earlier payloads.
  MutableBytes space();
  std::size_t wanted() const noexcept { return wanted_; }
  void filled(std::size_t byte_count) noexcept { end_ += byte_count; }
  // Nothing of a further frame has come yet.
  bool drained() const noexcept { return begin_ == end_; }

 private:
  // Its bytes begin unwritten: of a reader of short frames few of its pages are ever touched.
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t buffer_bytes_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t wanted_ = kFrameHeaderBytes;
};

}  // namespace gpurun::protocol
