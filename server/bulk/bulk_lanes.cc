// The threads of the bulk connections, and which of them sends what.
#include "server/bulk/bulk_lanes.h"

#include <system_error>
#include <utility>

#include "protocol/bulk_head.h"
#include "protocol/chunk_wire.h"

namespace gpurun::server {

using protocol::BulkHeader;
using protocol::FrameKind;

namespace {

// Chunks are bounded by their slots; this bounds news of failed copies.
constexpr std::size_t kSaidMax = 65'536;
// A copy's bytes that whoever has them sends by itself. Larger ones are sent beside what the device
// is doing for the next.
constexpr std::size_t kSentAtOnceMax = std::size_t{64} << 10;

// Set on receivers, which look for receipts after each frame: nobody need be woken for those that
// become due while such a thread is at work.
thread_local bool looks_for_receipts = false;

}  // namespace

BulkLanes::BulkLanes(const std::vector<transport::Connection*>& connections, bool packs)
    : packs_(packs),
      staging_in_(limits::kBulkWindowBytes),
      staging_out_(kStagingOutBytes),
      in_(staging_in_, {this, [](void* user) { static_cast<BulkLanes*>(user)->changed(); },
                        [](void* user, FrameKind kind, const BulkHeader& header) {
                          static_cast<BulkLanes*>(user)->say({kind, header, {}});
                        }}),
      out_(staging_out_, {this, [](void* user) { static_cast<BulkLanes*>(user)->changed(); },
                          [](void* user, FrameKind kind, const BulkHeader& header, ByteView bytes) {
                            static_cast<BulkLanes*>(user)->say({kind, header, bytes});
                          }}) {
  for (transport::Connection* connection : connections) lanes_.emplace_back(connection, packs);
  if (!lanes_.empty()) first_ = &lanes_.front();
}

BulkLanes::~BulkLanes() { stop(); }

Status BulkLanes::start(Listener listener) {
  listener_ = listener;
  if (!staging_in_.ok() || !staging_out_.ok()) {
    return Status(Code::kResourceExhausted, "no address space for staging memory");
  }
  try {
    const std::lock_guard lock(joining_);
    for (Lane& lane : lanes_) {
      threads_.emplace_back([this, &lane] { run_sender(lane); });
      threads_.emplace_back([this, &lane] { run_receiver(lane); });
    }
    started_ = true;
  } catch (const std::system_error& error) {
    stop();
    return Status(Code::kResourceExhausted, error.what());
  }
  return {};
}

bool BulkLanes::add(std::unique_ptr<transport::Connection> connection, const Begin& begin) {
  const std::lock_guard lock(joining_);
  // The log is one of the session's connections, too.
  if (!started_ || stopping_ || lanes_.size() + 1 >= limits::kConnectionsMax) return false;
  Lane& lane = lanes_.emplace_back(connection.get(), packs_);
  lane.owned = std::move(connection);
  // No thread of it runs, so that the client may still be refused, or go.
  if (!begin(*lane.connection).ok()) {
    lanes_.pop_back();
    return false;
  }
  try {
    // Its receiver gives the receipts that there are to give on it. A sender more would be woken
    // for those of all connections.
    threads_.emplace_back([this, &lane] { run_receiver(lane); });
  } catch (const std::system_error&) {
    // And the session with it: the client may have sent over it already.
    lane.connection->shut_down();
    return false;
  }
  return true;
}

void BulkLanes::stop() {
  stopping_ = true;
  in_.stop();
  const std::lock_guard joining(joining_);
  for (Lane& lane : lanes_) lane.connection->shut_down();
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
  const bool small = said.kind == FrameKind::kChunk && said.header.total <= kSentAtOnceMax;
  if (small && send_at_once(said)) return;
  bool full = false;
  {
    const std::lock_guard lock(mutex_);
    if (said.kind == FrameKind::kChunkReceipt) {
      note_receipt(said.header);
    } else {
      said_.push_back(said);
      full = said_.size() == kSaidMax;
      due_.notify_all();
    }
  }
  if (!full) return;
  listener_.failed(listener_.user,
                   Status(Code::kProtocol, "the client reads nothing on its bulk connections"));
}

// With the lock held. A receipt costs both sides a thread's sleep, or a part of one's turn.
void BulkLanes::note_receipt(const BulkHeader& receipt) {
  const bool large = receipt.total > limits::kBulkChunkBytes;
  const bool due = receipts_.note(receipt, large && receipt.offset == receipt.total);
  if (due && !looks_for_receipts) due_.notify_all();
}

// With the lock held, as the next. What is not a receipt goes over the first connection alone: the
// client writes bytes where they belong as they come, and over several they would lose their order.
bool BulkLanes::has_to_say(const Lane& lane) const {
  return receipts_.due() || (&lane == first_ && !said_.empty());
}

bool BulkLanes::next_to_say(const Lane& lane, Said* said) {
  if (&lane != first_ || said_.empty()) return false;
  *said = said_.front();
  said_.pop_front();
  return true;
}

// A chunk of which every byte is the connection's. True: a copy that waits may go on.
bool BulkLanes::gone(const Said& said) {
  auto* const slot = const_cast<std::byte*>(said.bytes.data());
  return out_.gone(said.header.transfer, slot, said.bytes.size());
}

// Without waiting: who has the bytes may have calls of other streams to see to. False: somebody
// else sends, something else comes first, or the bytes are better packed. What the connection does
// not take at once its sender goes on with.
bool BulkLanes::send_at_once(const Said& said) {
  Lane& lane = *first_;
  std::unique_lock sending(lane.sending, std::try_to_lock);
  if (!sending.owns_lock() || lane.has_rest || lane.packer.compresses()) return false;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || receipts_.due() || !said_.empty()) return false;
  }
  lane.chunk.begin(lane.packer, said.header, said.bytes);
  const Result<std::size_t> went = lane.connection->send_some(lane.chunk.left());
  if (went.ok()) lane.chunk.went(lane.packer, *went);
  if (went.ok() && !lane.chunk.left().empty()) {
    lane.begun = said;
    const std::lock_guard lock(mutex_);
    lane.has_rest = true;
    due_.notify_all();
    return true;
  }
  sending.unlock();
  if (gone(said)) changed();
  if (!went.ok() && !stopping_) listener_.failed(listener_.user, went.status());
  return true;
}

// The sender has the lane before it takes what it will send: so bytes leave in the order in which
// they were said, whoever sends them, and of two copies to one place the later one is there at
// last.
Status BulkLanes::send_next(Lane& lane) {
  Said said;
  protocol::Receipts::Batch receipts;
  std::unique_lock sending(lane.sending);
  const bool begun = lane.has_rest;
  {
    const std::lock_guard lock(mutex_);
    if (!begun) receipts = receipts_.take();  // First: the client waits for room.
    if (!begun && receipts.empty() && !next_to_say(lane, &said)) return {};
    if (begun) said = lane.begun;
    lane.has_rest = false;
  }
  if (!receipts.empty()) return send_receipts(lane, receipts);
  if (said.kind != FrameKind::kChunk) {
    return protocol::send_bulk_word(*lane.connection, said.kind, said.header);
  }
  if (!begun) lane.chunk.begin(lane.packer, said.header, said.bytes);
  const Status sent = lane.chunk.send_rest(lane.packer, *lane.connection);
  sending.unlock();
  if (gone(said) && !stopping_) listener_.time(listener_.user);
  return sent;
}

void BulkLanes::run_sender(Lane& lane) {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      due_.wait(lock, [&] { return stopping_ || lane.has_rest || has_to_say(lane); });
      if (stopping_) return;
    }
    if (const Status sent = send_next(lane); !sent.ok()) {
      if (!stopping_) listener_.failed(listener_.user, sent);
      return;
    }
  }
}

void BulkLanes::run_receiver(Lane& lane) {
  looks_for_receipts = true;
  protocol::BulkHeads heads;
  Bytes scratch;
  Status status;
  while (status.ok()) {
    status = receive_frame(*lane.connection, heads, scratch);
    if (status.ok()) status = give_receipts(lane);
  }
  if (!stopping_) listener_.failed(listener_.user, status);
}

// Those that are due, here if nobody sends on this connection just now: the client's receiver takes
// what comes whatever its sender does, so that this waits for nothing that waits for us.
Status BulkLanes::give_receipts(Lane& lane) {
  const std::unique_lock sending(lane.sending, std::try_to_lock);
  for (;;) {
    protocol::Receipts::Batch receipts;
    {
      const std::lock_guard lock(mutex_);
      if (!sending.owns_lock() || lane.has_rest) {
        if (receipts_.due()) due_.notify_all();
        return {};
      }
      receipts = receipts_.take();
    }
    if (receipts.empty()) return {};
    GPURUN_RETURN_IF_ERROR(send_receipts(lane, receipts));
  }
}

Status BulkLanes::send_receipts(Lane& lane, const protocol::Receipts::Batch& receipts) {
  return protocol::send_bulk_words(*lane.connection, FrameKind::kChunkReceipt, receipts.headers());
}

// Unbounded, as above.
Status BulkLanes::receive_frame(transport::Connection& connection, protocol::BulkHeads& heads,
                                Bytes& scratch) {
  const auto head = heads.receive(connection);
  if (!head.ok()) return head.status();
  if (!head->has_value()) return {};
  const auto& [kind, header, bytes] = **head;
  if (kind == FrameKind::kChunkWanted) {
    return Status(Code::kProtocol, "a frame that a client does not send on a bulk connection");
  }
  if (kind == FrameKind::kChunkReceipt) return out_.receipt(header);
  if (kind == FrameKind::kChunkAbandoned) {
    in_.given_up(header);
    return {};
  }
  const Result<protocol::ChunkOnWire> chunk =
      protocol::receive_chunk_head(connection, kind, header, bytes);
  if (!chunk.ok()) return chunk.status();
  const Result<BulkIn::Landing> landing = in_.claim(header, chunk->bytes);
  if (!landing.ok()) return landing.status();
  const MutableBytes into(landing->into, landing->into == nullptr ? 0 : chunk->bytes);
  GPURUN_RETURN_IF_ERROR(protocol::receive_chunk(connection, *chunk, into, scratch));
  if (in_.landed(header, chunk->bytes, *landing) && !stopping_) listener_.time(listener_.user);
  return {};
}

}  // namespace gpurun::server
