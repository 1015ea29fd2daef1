// The heads of a bulk connection's frames, each with as few receives as the wire allows.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <optional>

#include "base/deadline.h"
#include "base/result.h"
#include "protocol/frame.h"

namespace gpurun::protocol {

// What stands before the bytes of a frame; these follow on the connection.
struct BulkFrameHead {
  FrameKind kind = FrameKind::kHeartbeat;
  BulkHeader bulk;
  std::size_t bytes = 0;
};

// One for each connection, its receiver's. Bytes of a frame are never read ahead, so that they go
// from the connection to where they belong; only a heartbeat may be followed by what is kept here.
class BulkHeads {
 public:
  // The next frame's; nothing: a heartbeat. Waits without a bound: a dead peer is noticed on the
  // log channel, whose end shuts this one down.
  //   kProtocol  not a frame, or of a kind that no bulk connection carries, or parse_bulk_header().
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
    const bool known = frame->kind == FrameKind::kChunk || frame->kind == FrameKind::kChunkPacked ||
                       frame->kind == FrameKind::kChunkReceipt ||
                       frame->kind == FrameKind::kChunkAbandoned ||
                       frame->kind == FrameKind::kChunkWanted;
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
