// The threads of the bulk connections, and which of them sends what.
#include "server/bulk/bulk_lanes.h"

#include <array>
#include <system_error>
#include <utility>

namespace gpurun::server {

using protocol::BulkHeader;
using protocol::FrameKind;

namespace {

// Chunks are bounded by their slots; this bounds news of failed copies.
constexpr std::size_t kSaidMax = 65'536;

}  // namespace

BulkLanes::BulkLanes(std::vector<transport::Connection*> connections)
    : connections_(std::move(connections)),
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
      receipts_[said.header.transfer] = said.header;
    } else {
      said_.push_back(said);
      full = said_.size() == kSaidMax;
    }
    due_.notify_one();
  }
  if (!full) return;
  listener_.failed(listener_.user,
                   Status(Code::kProtocol, "the client reads nothing on its bulk connections"));
}

// Receipts first: the client waits for room.
bool BulkLanes::next_to_say(Said* said) {
  if (!receipts_.empty()) {
    *said = {FrameKind::kChunkReceipt, receipts_.begin()->second, {}};
    receipts_.erase(receipts_.begin());
    return true;
  }
  if (said_.empty()) return false;
  *said = said_.front();
  said_.pop_front();
  return true;
}

void BulkLanes::run_sender(transport::Connection& connection) {
  struct {
    protocol::FrameHeader frame;
    BulkHeader bulk;
  } head;
  static_assert(sizeof head == protocol::kFrameHeaderBytes + protocol::kBulkHeaderBytes);
  for (;;) {
    Said said;
    {
      std::unique_lock lock(mutex_);
      due_.wait(lock, [&] { return stopping_ || next_to_say(&said); });
      if (stopping_) return;
    }
    head.frame = protocol::FrameHeader{};
    head.frame.kind = said.kind;
    head.frame.payload_bytes =
        static_cast<std::uint32_t>(protocol::kBulkHeaderBytes + said.bytes.size());
    head.bulk = said.header;
    const std::array<ByteView, 2> parts = {bytes_of(head), said.bytes};
    const std::size_t part_count = said.bytes.empty() ? 1 : 2;
    // Unbounded: a dead peer is noticed on the log channel, whose end shuts this one down.
    const Status sent = connection.send(std::span(parts.data(), part_count), Deadline::never());
    if (said.kind == FrameKind::kChunk) out_.gone(said.header.transfer, said.header.offset);
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
  const bool known = frame->kind == FrameKind::kChunk || frame->kind == FrameKind::kChunkReceipt ||
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

  const Result<BulkIn::Landing> landing = in_.claim(*header, bytes);
  if (!landing.ok()) return landing.status();
  MutableBytes into(landing->into, bytes);
  if (landing->into == nullptr) {
    scratch.resize(limits::kBulkChunkBytes);
    into = MutableBytes(scratch).first(bytes);
  }
  got = connection.receive(into, bytes, Deadline::never());
  if (!got.ok()) return got.status();
  in_.landed(*header, bytes, *landing);
  return {};
}

}  // namespace gpurun::server
