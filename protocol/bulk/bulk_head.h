// BulkHeads: receives the heads of a bulk connection's frames, each with as few receives as
// possible.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <optional>

#include "base/deadline.h"
#include "base/result.h"
#include "protocol/log/frame.h"

namespace gpurun::protocol {

// The head of a frame. The frame's bytes follow it on the connection.
struct BulkFrameHead {
  FrameKind kind = FrameKind::kHeartbeat;
  BulkHeader bulk;
  std::size_t bytes = 0;
};

// One for each bulk connection, at its receiving end. It never reads ahead into the bytes of a
// frame, so that they go directly where they belong. Only bytes behind a heartbeat may be kept
// here.
class BulkHeads {
 public:
  // Returns the head of the next frame, or nothing for a heartbeat. Waits without a bound. A dead
  // peer is noticed on the log connection, and the end of that shuts this connection down.
  //   kProtocol  not a frame, not a kind for bulk connections, or an error of parse_bulk_header().
  template <typename Connection>
  Result<std::optional<BulkFrameHead>> receive(Connection& connection) {
    GPURUN_RETURN_IF_ERROR(fill(connection, kFrameHeaderBytes));
    const Result<FrameHeader> frame = parse_frame_header(head_);
    if (!frame.ok()) return frame.status();
    if (frame->kind == FrameKind::kHeartbeat && frame->payload_bytes == 0) {
      have_ -= kFrameHeaderBytes;
      std::memmove(head_.data(), head_.data() + kFrameHeaderBytes, have_);
      return std::optional<BulkFrameHead>();
    }
    const bool known =
        frame->kind == FrameKind::kChunk || frame->kind == FrameKind::kChunkPacked ||
        frame->kind == FrameKind::kChunkReceipt || frame->kind == FrameKind::kChunkAbandoned ||
        frame->kind == FrameKind::kChunkWanted || frame->kind == FrameKind::kChunkWritten;
    if (!known || frame->payload_bytes < kBulkHeaderBytes) {
      return Status(Code::kProtocol, "a frame that does not belong on a bulk connection");
    }
    GPURUN_RETURN_IF_ERROR(fill(connection, head_.size()));
    have_ = 0;
    BulkFrameHead result;
    result.kind = frame->kind;
    result.bytes = frame->payload_bytes - kBulkHeaderBytes;
    const Result<BulkHeader> bulk =
        parse_bulk_header(frame->kind, ByteView(head_).subspan(kFrameHeaderBytes), result.bytes);
    if (!bulk.ok()) return bulk.status();
    result.bulk = *bulk;
    return std::optional<BulkFrameHead>(result);
  }

 private:
  template <typename Connection>
  Status fill(Connection& connection, std::size_t bytes) {
    if (have_ >= bytes) return {};
    const Result<std::size_t> got =
        connection.receive(MutableBytes(head_).subspan(have_), bytes - have_, Deadline::never());
    if (got.ok()) have_ += *got;
    return got.status();
  }

  std::array<std::byte, kFrameHeaderBytes + kBulkHeaderBytes> head_;
  std::size_t have_ = 0;
};

}  // namespace gpurun::protocol
