// Bulk: start and end, and the receiving half.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "client/bulk/bulk.h"
#include "client/process/core_time.h"
#include "protocol/bulk/bulk_head.h"

namespace gpurun::client {

using protocol::BulkHeader;
using protocol::FrameKind;

namespace {

// Within one machine a whole chunk passes through a buffer that stays in the cache. The kernel
// copies to it faster, and holds the socket for less long, which the sender waits for
// (docs/adr/0026). TLS has such a buffer of its own.
bool comes_through_cache(const transport::Connection& connection,
                         const protocol::ChunkOnWire& chunk) {
  const transport::Capabilities& can = connection.capabilities();
  return chunk.bytes == limits::kBulkChunkBytes && !chunk.packed.has_value() && can.same_host &&
         !can.encrypted && !can.shares_memory;
}

}  // namespace

Bulk::Bulk(std::vector<transport::Connection*> connections, Listener listener, Known known,
           std::optional<ConnectionCount::Bounds> bounds)
    : listener_(listener),
      known_(known),
      in_memory_(connections.front()->capabilities().shares_memory) {
  for (transport::Connection* connection : connections) {
    channels_.push_back(
        std::make_unique<Channel>(this, connection, known.packed_chunks, channels_.size()));
  }
  open_ = used_ = asked_for_ = static_cast<unsigned>(channels_.size());
  if (bounds.has_value() && open_ == 1) {
    count_.emplace(*bounds);
    if (known.spread_copies) count_out_.emplace(*bounds);
  }
  may_join_ = count_.has_value();
}

Bulk::~Bulk() {
  if (window_ != nullptr) munmap(window_, limits::kBulkWindowBytes);
}

Status Bulk::start() {
  // Only address space: pages come with their first use and are reused from then on.
  void* memory = mmap(nullptr, limits::kBulkWindowBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return Status(Code::kResourceExhausted, "no memory for bulk bytes");
  window_ = static_cast<std::byte*>(memory);
  for (std::size_t slot = limits::kBulkWindowBytes / limits::kBulkChunkBytes; slot-- > 0;) {
    free_slots_.push_back(slot);
  }
  for (auto& channel : channels_) GPURUN_RETURN_IF_ERROR(start_channel(*channel));
  return {};
}

void Bulk::end() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  ended_ = true;
  for (auto& channel : channels_) {
    if (channel->owned != nullptr) channel->owned->shut_down();
  }
  to_send_.notify_all();
  unused_.notify_all();
  room_.notify_all();
  read_.notify_all();
  completed_.notify_all();
}

void Bulk::join() noexcept {
  for (auto& channel : channels_) {
    channel->sender.join();
    channel->receiver.join();
  }
}

unsigned Bulk::expect(std::uint64_t transfer, const HostBox& destination, bool unattended) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Incoming in;
  in.destination = destination;
  in.total = destination.bytes();
  in.unattended = unattended;
  const unsigned connections = note_expected(in);
  incoming_.emplace(transfer, in);
  if (unattended) unattended_.fetch_add(1, std::memory_order_acq_rel);
  return connections > 1 ? connections : 0;
}

bool Bulk::outstanding(ByteView memory) const noexcept {
  if (!outstanding()) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::any_of(incoming_.begin(), incoming_.end(), [memory](const auto& each) {
    const MutableBytes to = each.second.destination.reach();
    return each.second.unattended && to.data() < memory.data() + memory.size() &&
           memory.data() < to.data() + to.size();
  });
}

bool Bulk::cancel(std::uint64_t transfer) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto found = incoming_.find(transfer);
  if (found == incoming_.end()) return false;
  found->second.claimed = found->second.total;  // No further chunk gets in.
  // Bounded by the life of the connection: its end ends a receive in progress.
  written_.wait(lock, [&] {
    const auto now = incoming_.find(transfer);
    return now == incoming_.end() || now->second.writers == 0;
  });
  const auto left = incoming_.find(transfer);
  if (left == incoming_.end()) return false;
  const Incoming in = left->second;
  if (in.unattended) unattended_.fetch_sub(1, std::memory_order_acq_rel);
  if (in.counted) count_out_->dropped(ConnectionCount::Clock::now(), in.total - in.received);
  incoming_.erase(left);
  lock.unlock();
  // If its completion has come, over another connection than some of its bytes, other threads wait
  // for it.
  if (in.watermark != 0) {
    if (Status status = complete(in.watermark); !status.ok()) {
      listener_.failed(listener_.user, std::move(status));
    }
  }
  return true;
}

void Bulk::run_receiver(Channel& channel) {
  protocol::BulkHeads heads;
  Scratch scratch;
  Status status;
  while (status.ok()) status = receive_frame(*channel.connection, heads, scratch);
  listener_.failed(listener_.user, std::move(status));
}

// Unbounded here and below. The log channel watches for silence and shuts this connection down.
Status Bulk::receive_frame(transport::Connection& connection, protocol::BulkHeads& heads,
                           Scratch& scratch) {
  const auto head = heads.receive(connection);
  if (!head.ok()) return head.status();
  if (!head->has_value()) return {};
  after_reads();
  const auto& [kind, header, bytes] = **head;
  if (header.transfer > last_transfer_.load(std::memory_order_acquire)) {
    return Status(Code::kProtocol, "bytes of a transfer that was never begun");
  }
  if (kind == FrameKind::kChunkReceipt) {
    Status retired = retire(header);
    ask_for_more();
    return retired;
  }
  if (kind == FrameKind::kChunkAbandoned) return abandoned(header);
  if (kind == FrameKind::kChunkWanted) return wanted(header.transfer, 0);
  const Result<protocol::ChunkOnWire> chunk =
      protocol::receive_chunk_head(connection, kind, header, bytes);
  if (!chunk.ok()) return chunk.status();
  Status received = receive_chunk(connection, header, *chunk, scratch);
  ask_for_more();
  return received;
}

// Waits until transfers 1 to `behind` have arrived. The worker sent them before this chunk, over
// any connection. This cannot deadlock: none of their chunks follows a chunk that waits for them.
// What the earliest chunk waits for has therefore arrived.
Status Bulk::await_turn(std::uint64_t behind) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (behind > last_transfer_.load(std::memory_order_acquire)) {
    return Status(Code::kProtocol, "a chunk behind transfers that were never begun");
  }
  completed_.wait(lock, [&] { return ended_ || completed_through_ >= behind; });
  return completed_through_ >= behind ? Status() : Status(Code::kPeerGone, "the session has ended");
}

Status Bulk::receive_chunk(transport::Connection& connection, const BulkHeader& told,
                           const protocol::ChunkOnWire& chunk, Scratch& scratch) {
  const std::size_t bytes = chunk.bytes;
  BulkHeader header = told;
  if (known_.spread_copies) {
    const bool last = told.offset + bytes == told.total;
    if (!last) header.watermark = 0;
    const std::uint64_t behind = told.watermark - (last && told.watermark != 0 ? 1 : 0);
    GPURUN_RETURN_IF_ERROR(await_turn(behind));
  }
  std::optional<HostBox> box;  // Empty: its call has failed, and the bytes are dropped.
  bool measures = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = incoming_.find(header.transfer);
    if (found != incoming_.end() && found->second.claimed + bytes <= found->second.total) {
      Incoming& in = found->second;
      if (header.total != in.total) {
        return Status(Code::kProtocol, "a transfer of another size than was asked for");
      }
      in.claimed += bytes;
      ++in.writers;
      measures = in.counted && ++receives_ % kTurnsPerLook == 0;
      if (listener_.writes != nullptr) listener_.writes(listener_.user);
      box = in.destination;
    }
  }
  const bool staged =
      box.has_value() && (!box->is_dense() || comes_through_cache(connection, chunk));
  MutableBytes into;
  if (staged) {
    scratch.staged.resize(bytes);
    into = scratch.staged;
  } else if (box.has_value()) {
    into = box->reach().subspan(static_cast<std::size_t>(header.offset), bytes);
  }
  const auto core_time = measures ? core_time_of_thread() : ConnectionCount::Span{0};
  Status status = protocol::receive_chunk(connection, chunk, into, scratch.packed);
  if (status.ok() && staged) write_box(*box, header.offset, into);
  std::uint64_t finished = box.has_value() ? 0 : header.watermark;
  const auto worked = measures ? core_time_of_thread() - core_time : ConnectionCount::Span{0};
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (measures) count_out_->worked(kTurnsPerLook * worked);
    const auto found = incoming_.find(header.transfer);
    if (box.has_value() && found != incoming_.end()) {
      Incoming& in = found->second;
      --in.writers;
      if (status.ok()) {
        in.received += bytes;
        note_received(in, bytes);
      }
      if (header.watermark != 0) in.watermark = header.watermark;
      if (status.ok() && in.received == in.total) {
        if (in.watermark == 0) return Status(Code::kProtocol, "a completion without its number");
        finished = in.watermark;
        if (in.unattended) unattended_.fetch_sub(1, std::memory_order_acq_rel);
        note_receipt({header.transfer, header.total, header.total, 0});
        incoming_.erase(found);
      } else {
        note_receipt({header.transfer, in.received, header.total, 0});
      }
    } else {
      note_receipt({header.transfer, header.offset + bytes, header.total, 0});
    }
    written_.notify_all();
  }
  GPURUN_RETURN_IF_ERROR(std::move(status));
  return finished == 0 ? Status() : complete(finished);
}

// With the lock held.
void Bulk::note_receipt(const BulkHeader& receipt) {
  if (receipts_.note(receipt, false)) to_send_.notify_one();
}

Status Bulk::abandoned(const BulkHeader& header) {
  abandon(header.transfer);
  bool unattended = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = incoming_.find(header.transfer);
    if (found != incoming_.end()) {
      unattended = found->second.unattended;
      found->second.claimed = found->second.total;  // No further chunk gets in.
    }
  }
  // An unattended transfer ends here. One that a thread waits for stays until its cancel().
  if (unattended) cancel(header.transfer);
  return header.watermark == 0 ? Status() : complete(header.watermark);
}

Status Bulk::complete(std::uint64_t watermark) {
  std::uint64_t through = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (watermark <= completed_through_ || kept_.count(watermark) != 0 ||
        !early_completions_.insert(watermark).second ||
        early_completions_.size() > kEarlyCompletionsMax) {
      return Status(Code::kProtocol,
                    "completion " + std::to_string(watermark) + " comes twice or far too early");
    }
    GPURUN_RETURN_IF_ERROR(go_through());
    through = completed_through_;
    completed_.notify_all();
    if (!lines_.empty()) to_send_.notify_one();  // A transfer that was asked for may have waited.
  }
  listener_.completed(listener_.user, through);
  return {};
}

// With the lock held, as the next. Passes all completions that have no gap before them.
Status Bulk::go_through() {
  for (;;) {
    const std::uint64_t next = completed_through_ + 1;
    if (!early_completions_.empty() && *early_completions_.begin() == next) {
      early_completions_.erase(early_completions_.begin());
    } else if (!kept_.empty() && kept_.begin()->first == next) {
      const Kept kept = std::move(kept_.begin()->second);
      kept_.erase(kept_.begin());
      kept_bytes_ -= kept.bytes.size() + kKeptBytesEach;
      GPURUN_RETURN_IF_ERROR(write_whole(kept.transfer, kept.bytes));
    } else {
      return {};
    }
    completed_through_ = next;
  }
}

// Drops the bytes if the call has failed.
Status Bulk::write_whole(std::uint64_t transfer, ByteView bytes) {
  const auto found = incoming_.find(transfer);
  if (found == incoming_.end()) return {};
  Incoming& in = found->second;
  if (bytes.size() != in.total) {
    return Status(Code::kProtocol, "a transfer of another size than was asked for");
  }
  if (in.claimed != 0) return {};
  if (listener_.writes != nullptr) listener_.writes(listener_.user);
  write_box(in.destination, 0, bytes);
  in.claimed = in.received = in.total;
  note_received(in, in.total);
  if (in.unattended) unattended_.fetch_sub(1, std::memory_order_acq_rel);
  incoming_.erase(found);
  return {};
}

Result<bool> Bulk::take_whole(std::uint64_t transfer, std::uint64_t number, ByteView bytes) {
  if (transfer > last_transfer_.load(std::memory_order_acquire)) {
    return Status(Code::kProtocol, "bytes of a transfer that was never begun");
  }
  if (bytes.size() > limits::kItemCopyBytesMax) {
    return Status(Code::kProtocol,
                  "a copy of " + std::to_string(bytes.size()) + " bytes on the log");
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (ended_) return Status(Code::kPeerGone, "the session has ended");
    if (number <= completed_through_ || kept_.count(number) != 0) {
      return Status(Code::kProtocol, "completion " + std::to_string(number) + " comes twice");
    }
    if (number != completed_through_ + 1) {
      const std::size_t cost = bytes.size() + kKeptBytesEach;
      if (number - completed_through_ > kEarlyCompletionsMax ||
          kept_bytes_ + cost > kKeptBytesMax) {
        return false;
      }
      kept_.emplace(number, Kept{transfer, Bytes(bytes.begin(), bytes.end())});
      kept_bytes_ += cost;
      return true;
    }
    GPURUN_RETURN_IF_ERROR(write_whole(transfer, bytes));
  }
  GPURUN_RETURN_IF_ERROR(complete(number));
  return true;
}

std::optional<std::uint64_t> Bulk::await_completion(std::uint64_t behind,
                                                    std::chrono::milliseconds at_most) {
  std::unique_lock<std::mutex> lock(mutex_);
  completed_.wait_for(lock, at_most, [&] { return ended_ || completed_through_ > behind; });
  return ended_ ? std::nullopt : std::optional(completed_through_);
}

}  // namespace gpurun::client
