// The threads of the bulk connections, and which of them sends what.
#include "server/bulk/bulk_lanes.h"

#include <system_error>
#include <utility>

#include "protocol/chunk_wire.h"

namespace gpurun::server {

using protocol::BulkHeader;
using protocol::FrameKind;

namespace {

// Chunks are bounded by their slots; this bounds news of failed copies.
constexpr std::size_t kSaidMax = 65'536;
// Retired chunks that the client hears of together. Fewer than the slots that it keeps for whoever
// must go on (client/bulk.h): else these could all wait for a receipt that waits for more of them.
constexpr std::size_t kChunksPerReceipt = 4;

}  // namespace

BulkLanes::BulkLanes(std::vector<transport::Connection*> connections, bool packs)
    : connections_(std::move(connections)),
      packs_(packs),
      staging_in_(limits::kBulkWindowBytes),
      staging_out_(kStagingOutBytes),
      in_(staging_in_, {this, [](void* user) { static_cast<BulkLanes*>(user)->changed(); },
                        [](void* user, FrameKind kind, const BulkHeader& header) {
                          static_cast<BulkLanes*>(user)->say({kind, header, {}});
                        }}),
      out_(staging_out_, {this, [](void* user) { static_cast<BulkLanes*>(user)->changed(); },
                          [](void* user, FrameKind kind, const BulkHeader& header, ByteView bytes) {
                            static_cast<BulkLanes*>(user)->say({kind, header, bytes});
                          }}) {}

BulkLanes::~BulkLanes() { stop(); }

Status BulkLanes::start(Listener listener) {
  listener_ = listener;
  if (!staging_in_.ok() || !staging_out_.ok()) {
    return Status(Code::kResourceExhausted, "no address space for staging memory");
  }
  try {
    for (transport::Connection* connection : connections_) {
      threads_.emplace_back([this, connection] { run_sender(*connection); });
      threads_.emplace_back([this, connection] { run_receiver(*connection); });
    }
  } catch (const std::system_error& error) {
    stop();
    return Status(Code::kResourceExhausted, error.what());
  }
  return {};
}

void BulkLanes::stop() {
  stopping_ = true;
  in_.stop();
  for (transport::Connection* connection : connections_) connection->shut_down();
  {
    const std::lock_guard lock(mutex_);
    due_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void BulkLanes::changed() {
  if (!stopping_) listener_.changed(listener_.user);
}

void BulkLanes::say(const Said& said) {
  bool full = false;
  {
    const std::lock_guard lock(mutex_);
    if (said.kind == FrameKind::kChunkReceipt) {
      note_receipt(said.header);
    } else {
      said_.push_back(said);
      full = said_.size() == kSaidMax;
      due_.notify_one();
    }
  }
  if (!full) return;
  listener_.failed(listener_.user,
                   Status(Code::kProtocol, "the client reads nothing on its bulk connections"));
}

// With the lock held. A receipt costs both sides a thread's sleep.
void BulkLanes::note_receipt(const BulkHeader& receipt) {
  receipts_[receipt.transfer] = receipt;
  const bool large = receipt.total > limits::kBulkChunkBytes;
  if (++chunks_untold_ < kChunksPerReceipt && !(large && receipt.offset == receipt.total)) return;
  receipts_due_ = true;
  due_.notify_one();
}

// Receipts first: the client waits for room.
bool BulkLanes::next_to_say(Said* said) {
  if (receipts_due_) {
    *said = {FrameKind::kChunkReceipt, receipts_.begin()->second, {}};
    receipts_.erase(receipts_.begin());
    if (receipts_.empty()) {
      receipts_due_ = false;
      chunks_untold_ = 0;
    }
    return true;
  }
  if (said_.empty()) return false;
  *said = said_.front();
  said_.pop_front();
  return true;
}

void BulkLanes::run_sender(transport::Connection& connection) {
  protocol::ChunkPacker packer(packs_);
  for (;;) {
    Said said;
    {
      std::unique_lock lock(mutex_);
      due_.wait(lock, [&] { return stopping_ || next_to_say(&said); });
      if (stopping_) return;
    }
    const bool chunk = said.kind == FrameKind::kChunk;
    const Status sent = chunk ? protocol::send_chunk(connection, packer, said.header, said.bytes)
                              : protocol::send_bulk_word(connection, said.kind, said.header);
    const bool room =
        chunk && out_.gone(said.header.transfer, const_cast<std::byte*>(said.bytes.data()));
    if (room && !stopping_) listener_.time(listener_.user);
    if (!sent.ok()) {
      if (!stopping_) listener_.failed(listener_.user, sent);
      return;
    }
  }
}

void BulkLanes::run_receiver(transport::Connection& connection) {
  Bytes scratch;
  Status status;
  while (status.ok()) status = receive_frame(connection, scratch);
  if (!stopping_) listener_.failed(listener_.user, status);
}

Status BulkLanes::receive_frame(transport::Connection& connection, Bytes& scratch) {
  std::byte head[protocol::kFrameHeaderBytes];
  // Unbounded here and below, for the reason above.
  Result<std::size_t> got = connection.receive(head, sizeof head, Deadline::never());
  if (!got.ok()) return got.status();
  const Result<protocol::FrameHeader> frame = protocol::parse_frame_header(head);
  if (!frame.ok()) return frame.status();
  if (frame->kind == FrameKind::kHeartbeat && frame->payload_bytes == 0) return {};
  const bool known = frame->kind == FrameKind::kChunk || frame->kind == FrameKind::kChunkPacked ||
                     frame->kind == FrameKind::kChunkReceipt ||
                     frame->kind == FrameKind::kChunkAbandoned;
  if (!known || frame->payload_bytes < protocol::kBulkHeaderBytes) {
    return Status(Code::kProtocol, "a frame that a client does not send on a bulk connection");
  }
  std::byte bulk_head[protocol::kBulkHeaderBytes];
  got = connection.receive(bulk_head, sizeof bulk_head, Deadline::never());
  if (!got.ok()) return got.status();
  const std::size_t bytes = frame->payload_bytes - protocol::kBulkHeaderBytes;
  const Result<BulkHeader> header = protocol::parse_bulk_header(frame->kind, bulk_head, bytes);
  if (!header.ok()) return header.status();
  if (frame->kind == FrameKind::kChunkReceipt) return out_.receipt(*header);
  if (frame->kind == FrameKind::kChunkAbandoned) {
    in_.given_up(*header);
    return {};
  }

  const Result<protocol::ChunkOnWire> chunk =
      protocol::receive_chunk_head(connection, frame->kind, *header, bytes);
  if (!chunk.ok()) return chunk.status();
  const Result<BulkIn::Landing> landing = in_.claim(*header, chunk->bytes);
  if (!landing.ok()) return landing.status();
  const MutableBytes into(landing->into, landing->into == nullptr ? 0 : chunk->bytes);
  GPURUN_RETURN_IF_ERROR(protocol::receive_chunk(connection, *chunk, into, scratch));
  if (in_.landed(*header, chunk->bytes, *landing) && !stopping_) listener_.time(listener_.user);
  return {};
}

}  // namespace gpurun::server
