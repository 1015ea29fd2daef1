// BulkLanes: the threads of the bulk connections, and the choice of what each sends.
#include "server/bulk/bulk_lanes.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/thread_name.h"
#include "protocol/bulk/bulk_head.h"
#include "protocol/bulk/chunk_wire.h"

namespace gpurun::server {

using protocol::BulkHeader;
using protocol::FrameKind;

namespace {

// Slots bound the chunks. This bounds the notices of failed copies.
constexpr std::size_t kSaidMax = 65'536;
// Copies of at most this size are sent by the thread that has their bytes. Larger ones are sent by
// the sender while the device works on the next.
constexpr std::size_t kSentAtOnceMax = std::size_t{64} << 10;
// The longest wait of an idle sender for a write, before it looks at its queue again.
constexpr std::chrono::milliseconds kIdleLook{5};

// Set on receivers, which look for receipts after each frame. No thread is woken for receipts that
// become due while such a thread works.
thread_local bool looks_for_receipts = false;

// The items that a thread gathers.
struct Gathered {
  bool on = false;
  std::size_t chunks = 0, bytes = 0;
};
thread_local Gathered gathered;

}  // namespace

BulkLanes::BulkLanes(const std::vector<transport::Connection*>& connections, bool packs,
                     bool spreads, transport::RemoteMemory* remote,
                     transport::RemoteMemory* written, DirectMemory* direct)
    : packs_(packs),
      spreads_(spreads),
      staging_in_(limits::kBulkWindowBytes),
      staging_out_(kStagingOutBytes),
      in_(staging_in_, {this, [](void* user) { static_cast<BulkLanes*>(user)->changed(); },
                        [](void* user, FrameKind kind, const BulkHeader& header) {
                          static_cast<BulkLanes*>(user)->say({kind, header, {}});
                        }}),
      out_(staging_out_,
           {this, [](void* user) { static_cast<BulkLanes*>(user)->changed(); },
            [](void* user, FrameKind kind, const BulkHeader& header, ByteView bytes,
               unsigned lanes) {
              static_cast<BulkLanes*>(user)->say({kind, header, bytes, lanes});
            }},
           spreads),
      pulls_(remote,
             {this, [](void* user) { static_cast<BulkLanes*>(user)->changed(); },
              [](void* user) { static_cast<BulkLanes*>(user)->time(); },
              [](void* user, FrameKind kind, const BulkHeader& header) {
                static_cast<BulkLanes*>(user)->say({kind, header, {}});
              }},
             direct),
      writes_(spreads ? written : nullptr, staging_out_) {
  for (transport::Connection* connection : connections) {
    lanes_.emplace_back(connection, lanes_.size(), packs);
  }
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
      ++senders_;
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
  Lane& lane = lanes_.emplace_back(connection.get(), lanes_.size(), packs_);
  lane.owned = std::move(connection);
  // No thread of it runs yet, so the client may still be refused, or leave.
  if (!begin(*lane.connection).ok()) {
    lanes_.pop_back();
    return false;
  }
  try {
    // Its receiver sends the pending receipts on it. A sender before there are chunks for it would
    // only be woken for the chunks of other connections.
    threads_.emplace_back([this, &lane] { run_receiver(lane); });
  } catch (const std::system_error&) {
    // This ends the session too, because the client may have sent over the connection already.
    lane.connection->shut_down();
    return false;
  }
  return true;
}

unsigned BulkLanes::lanes_for(std::uint64_t wished) {
  if (!spreads_ || wished <= 1) return 1;
  const auto most = static_cast<unsigned>(std::min<std::uint64_t>(wished, limits::kConnectionsMax));
  if (most <= senders_) return most;
  // A connection is joining. For now the bytes use those that there are.
  const std::unique_lock lock(joining_, std::try_to_lock);
  try {
    while (lock.owns_lock() && started_ && !stopping_ && senders_ < most &&
           senders_ < lanes_.size()) {
      Lane& lane = lanes_[senders_];
      threads_.emplace_back([this, &lane] { run_sender(lane); });
      ++senders_;
    }
  } catch (const std::system_error&) {
    // Continues with fewer.
  }
  return std::clamp(most, 1U, senders_.load());
}

void BulkLanes::stop() {
  stopping_ = true;
  in_.stop();
  pulls_.stop();
  writes_.stop();
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

void BulkLanes::time() {
  if (!stopping_) listener_.time(listener_.user);
}

BulkLanes::Gathering::Gathering(BulkLanes* lanes) noexcept : lanes_(lanes) { gathered.on = true; }

BulkLanes::Gathering::~Gathering() {
  if (lanes_ != nullptr) lanes_->send_gathered();
  gathered = {};
}

void BulkLanes::send_gathered() {
  if (gathered.chunks == 0) return;
  gathered.chunks = gathered.bytes = 0;
  send_small();
}

// True: the calling thread sends it with later items.
bool BulkLanes::keeps_together(const Said& said) {
  if (!gathered.on) return false;
  gathered.bytes += said.bytes.size();
  ++gathered.chunks;
  using protocol::ChunksToSend;
  if (gathered.chunks < ChunksToSend::kChunksMax && gathered.bytes < ChunksToSend::kBytesMax) {
    return true;
  }
  gathered.chunks = gathered.bytes = 0;
  return false;
}

bool BulkLanes::may_carry(std::uint64_t bytes) const noexcept {
  return listener_.carry != nullptr && spreads_ && bytes <= limits::kItemCopyBytesMax;
}

// Only if the queue is empty. Otherwise the bytes would wait at the client for earlier items.
bool BulkLanes::goes_with_the_log(const Said& said) {
  const bool whole = said.kind == FrameKind::kChunk && said.bytes.size() == said.header.total;
  if (!whole || !may_carry(said.header.total)) return false;
  {
    const std::lock_guard lock(mutex_);
    if (!said_.empty()) return false;
  }
  if (!listener_.carry(listener_.user, said.header, said.bytes)) return false;
  auto* const slot = const_cast<std::byte*>(said.bytes.data());
  if (out_.gone(said.header.transfer, slot, said.bytes.size())) changed();
  return true;
}

void BulkLanes::say(const Said& said) {
  if (goes_with_the_log(said)) return;
  const bool small = said.kind == FrameKind::kChunk && said.header.total <= kSentAtOnceMax;
  const bool kept = small && keeps_together(said);
  bool full = false;
  {
    const std::lock_guard lock(mutex_);
    if (said.kind == FrameKind::kChunkReceipt) {
      note_receipt(said.header);
    } else {
      said_.push_back(said);
      kept_ = kept ? kept_ + 1 : 0;  // The gathered items go before it.
      full = said_.size() == kSaidMax;
      if (!small) due_.notify_all();
    }
  }
  if (small && !kept) send_small();
  if (!full) return;
  listener_.failed(listener_.user,
                   Status(Code::kProtocol, "the client reads nothing on its bulk connections"));
}

// With the lock held. A receipt costs both sides the wake-up of a thread, or a part of its turn.
void BulkLanes::note_receipt(const BulkHeader& receipt) {
  const bool large = receipt.total > limits::kBulkChunkBytes;
  const bool due = receipts_.note(receipt, large && receipt.offset == receipt.total);
  if (due && !looks_for_receipts) due_.notify_all();
}

// With the lock held, as the next functions. Items start in their order, over any connection. So
// before it writes a chunk the client may wait for earlier items (BulkHeader).
bool BulkLanes::may_say_next(const Lane& lane) const {
  if (said_.empty()) return false;
  return &lane == first_ ||
         (said_.front().kind == FrameKind::kChunk && lane.index < said_.front().lanes);
}

bool BulkLanes::has_to_say(const Lane& lane) const {
  return receipts_.due() || (said_.size() > kept_ && may_say_next(lane));
}

// A word, or a chunk that is written.
bool BulkLanes::next_is_apart() const {
  return !said_.empty() && (said_.front().kind != FrameKind::kChunk || said_.front().is_written());
}

bool BulkLanes::next_to_say(const Lane& lane, Said* said) {
  if (!may_say_next(lane)) return false;
  *said = said_.front();
  said_.pop_front();
  kept_ = std::min(kept_, said_.size());
  // Other senders that may send the new first item were asleep because of the item before it.
  if (said_.size() > kept_ && said_.front().lanes != said->lanes) due_.notify_all();
  return true;
}

// Takes the next item if it is a chunk of a transfer of at most `total_max` bytes that fits the
// chunks that the lane has begun.
bool BulkLanes::take_chunk(const Lane& lane, std::uint64_t total_max, Said* said) {
  const std::lock_guard lock(mutex_);
  if (said_.empty()) return false;
  const Said& next = said_.front();
  const bool fits = next.kind == FrameKind::kChunk && !next.is_written() &&
                    next.header.total <= total_max && lane.chunks.fits(next.bytes.size());
  return fits && next_to_say(lane, said);
}

// With lane.sending, as the next function.
void BulkLanes::begin_chunks(Lane& lane, std::uint64_t total_max) {
  for (Said said; take_chunk(lane, total_max, &said);) {
    lane.chunks.add(lane.packer, said.header, said.bytes);
    lane.begun.push_back(said);
  }
}

// The connection has every byte. True: a copy that waits may continue.
bool BulkLanes::begun_has_gone(Lane& lane) {
  bool room = false;
  for (const Said& said : lane.begun) {
    auto* const slot = const_cast<std::byte*>(said.bytes.data());
    room |= out_.gone(said.header.transfer, slot, said.bytes.size());
  }
  lane.begun.clear();
  return room;
}

// Sends the next small copies without waiting, because the calling thread may have calls of other
// streams. The sender takes over if another thread is sending, if other items come first, or if
// packing is better. It also gets what the connection does not take at once.
void BulkLanes::send_small() {
  Lane& lane = *first_;
  std::unique_lock sending(lane.sending, std::try_to_lock);
  const bool can = sending.owns_lock() && !lane.has_rest && !lane.packer.compresses();
  {
    const std::lock_guard lock(mutex_);
    kept_ = 0;
    if (stopping_) return;
    if (!can || receipts_.due()) return due_.notify_all();
  }
  bool room = false;
  bool rest = false;
  while (!rest) {
    begin_chunks(lane, kSentAtOnceMax);
    if (lane.begun.empty()) break;
    const Result<std::size_t> went = lane.connection->send_some(lane.chunks.left());
    if (went.ok()) lane.chunks.went(lane.packer, *went);
    rest = !lane.chunks.left().empty();  // Also when the connection is gone.
    if (!rest) room |= begun_has_gone(lane);
  }
  {
    const std::lock_guard lock(mutex_);
    lane.has_rest = rest;
    if (rest || !said_.empty()) due_.notify_all();
  }
  sending.unlock();
  if (room) changed();
}

// The slots of `written` are free. Behind a failure, what was not written goes first, and then
// `*before`.
void BulkLanes::end_writes(const BulkWrites::Chunks& written, const Said* before) {
  for (const BulkWrites::Chunk& chunk : written) {
    auto* const slot = const_cast<std::byte*>(chunk.bytes.data());
    room_ |= out_.gone(chunk.header.transfer, slot, chunk.bytes.size());
  }
  if (!writes_.has_failed()) return;
  const BulkWrites::Chunks left = writes_.take_failed();
  const std::lock_guard lock(mutex_);
  if (before != nullptr) said_.push_front(*before);
  for (auto at = left.rbegin(); at != left.rend(); ++at) {
    said_.push_front({FrameKind::kChunk, at->header, at->bytes, BulkOut::kWritten});
  }
}

void BulkLanes::await_writes() {
  std::unique_lock sending(first_->sending);
  BulkWrites::Chunks written;
  writes_.await_some(kIdleLook, &written);
  end_writes(written, nullptr);
  const bool room = std::exchange(room_, false);
  sending.unlock();
  if (room && !stopping_) listener_.time(listener_.user);
}

// No write is under way when the client learns the end of a transfer.
Status BulkLanes::send_word(const Said& said) {
  BulkWrites::Chunks written;
  writes_.await_all(&written);
  const bool failed = writes_.has_failed() && writes_.under_way();
  end_writes(written, failed ? &said : nullptr);
  if (failed) return {};  // It is in the queue again.
  if (said.kind == FrameKind::kChunkAbandoned) writes_.forget(said.header.transfer);
  return protocol::send_bulk_word(*first_->connection, said.kind, said.header);
}

Status BulkLanes::write(const Said& said) {
  const BulkHeader& header = said.header;
  const bool last = header.offset + said.bytes.size() == header.total;
  BulkWrites::Chunks written;
  writes_.write({header, said.bytes}, &written);
  if (last) {
    writes_.await_all(&written);
  } else {
    writes_.await_some(std::chrono::milliseconds(0), &written);
  }
  // Writes end in their order.
  const bool whole = last && !written.empty() &&
                     written.back().header.transfer == header.transfer &&
                     written.back().header.offset == header.offset;
  end_writes(written, nullptr);
  if (!whole) return {};
  writes_.forget(header.transfer);
  return protocol::send_bulk_word(*first_->connection, FrameKind::kChunkWritten,
                                  {header.transfer, header.total, header.total, header.watermark});
}

// Sends a chunk that was to be written.
Status BulkLanes::send_unwritten(const Said& said) {
  Lane& lane = *first_;
  if (const auto note = writes_.written_before(said.header); note.has_value()) {
    GPURUN_RETURN_IF_ERROR(
        protocol::send_bulk_word(*lane.connection, FrameKind::kChunkWritten, *note));
  }
  if (said.header.offset + said.bytes.size() == said.header.total) {
    writes_.forget(said.header.transfer);
  }
  lane.chunks.add(lane.packer, said.header, said.bytes);
  lane.begun.push_back(said);
  const Status sent = lane.chunks.send_rest(lane.packer, *lane.connection);
  room_ |= begun_has_gone(lane);
  return sent;
}

// The sender locks the lane before it takes its items. So bytes leave in their order, whichever
// thread sends them, and of two copies to one place the later one remains.
Status BulkLanes::send_next(Lane& lane) {
  std::unique_lock sending(lane.sending);
  if (!lane.has_rest) {
    protocol::Receipts::Batch receipts;
    Said said;
    bool apart = false;
    {
      const std::lock_guard lock(mutex_);
      receipts = receipts_.take();  // First, because the client waits for room.
      apart = receipts.empty() && &lane == first_ && next_is_apart() && next_to_say(lane, &said);
    }
    if (!receipts.empty()) return send_receipts(lane, receipts);
    if (apart) {
      const Status sent = !said.is_written()     ? send_word(said)
                          : writes_.has_failed() ? send_unwritten(said)
                                                 : write(said);
      const bool room = std::exchange(room_, false);
      sending.unlock();
      if (room && !stopping_) listener_.time(listener_.user);
      return sent;
    }
    begin_chunks(lane, ~std::uint64_t{0});
    if (lane.begun.empty()) return {};
  }
  const Status sent = lane.chunks.send_rest(lane.packer, *lane.connection);
  const bool room = begun_has_gone(lane);
  {
    const std::lock_guard lock(mutex_);
    lane.has_rest = false;
  }
  sending.unlock();
  if (room && !stopping_) listener_.time(listener_.user);
  return sent;
}

void BulkLanes::run_sender(Lane& lane) {
  name_this_thread("gpurun-bulk-out");
  for (;;) {
    bool waits_for_writes = false;
    {
      std::unique_lock lock(mutex_);
      const auto ready = [&] { return stopping_ || lane.has_rest || has_to_say(lane); };
      // The ends of writes make room for more. What comes meanwhile goes behind them anyway.
      waits_for_writes = &lane == first_ && writes_.under_way() && !ready();
      if (!waits_for_writes) due_.wait(lock, ready);
      if (stopping_) return;
    }
    if (waits_for_writes) {
      await_writes();
      continue;
    }
    if (const Status sent = send_next(lane); !sent.ok()) {
      if (!stopping_) listener_.failed(listener_.user, sent);
      return;
    }
  }
}

void BulkLanes::run_receiver(Lane& lane) {
  name_this_thread("gpurun-bulk-in");
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

// Sends the pending receipts if no other thread sends on this connection. The client's receiver
// takes them whatever its sender does, so this never waits for a peer that waits for us.
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

// Waits without a deadline for the client's bytes.
Status BulkLanes::receive_frame(transport::Connection& connection, protocol::BulkHeads& heads,
                                Bytes& scratch) {
  const auto head = heads.receive(connection);
  if (!head.ok()) return head.status();
  if (!head->has_value()) return {};
  const auto& [kind, header, bytes] = **head;
  if (kind == FrameKind::kChunkWanted || kind == FrameKind::kChunkWritten) {
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
  if (in_.landed(header, chunk->bytes, *landing)) time();
  return {};
}

}  // namespace gpurun::server
