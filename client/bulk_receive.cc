// Start and end of Bulk, and its receiving half.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "client/bulk.h"
#include "protocol/bulk_head.h"

namespace gpurun::client {

using protocol::BulkHeader;
using protocol::FrameKind;

Bulk::Bulk(std::vector<transport::Connection*> connections, Listener listener, bool packs,
           std::optional<ConnectionCount::Bounds> bounds)
    : listener_(listener), packs_(packs) {
  for (transport::Connection* connection : connections) {
    channels_.push_back(std::make_unique<Channel>(this, connection, packs, channels_.size()));
  }
  open_ = used_ = asked_for_ = static_cast<unsigned>(channels_.size());
  if (bounds.has_value() && open_ == 1) count_.emplace(*bounds);
  may_join_ = count_.has_value();
}

Bulk::~Bulk() {
  if (window_ != nullptr) munmap(window_, limits::kBulkWindowBytes);
}

Status Bulk::start() {
  // Address space alone: pages come with their first use and are used again from then on.
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
}

void Bulk::join() noexcept {
  for (auto& channel : channels_) {
    channel->sender.join();
    channel->receiver.join();
  }
}

void Bulk::expect(std::uint64_t transfer, const HostBox& destination, bool unattended) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Incoming in;
  in.destination = destination;
  in.total = destination.bytes();
  in.unattended = unattended;
  incoming_.emplace(transfer, in);
  if (unattended) unattended_.fetch_add(1, std::memory_order_acq_rel);
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
  if (left->second.unattended) unattended_.fetch_sub(1, std::memory_order_acq_rel);
  incoming_.erase(left);
  return true;
}

void Bulk::run_receiver(Channel& channel) {
  protocol::BulkHeads heads;
  Scratch scratch;
  Status status;
  while (status.ok()) status = receive_frame(*channel.connection, heads, scratch);
  listener_.failed(listener_.user, std::move(status));
}

// Unbounded here and below: silence is watched on the log channel, which shuts this one down.
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
  return receive_chunk(connection, header, *chunk, scratch);
}

Status Bulk::receive_chunk(transport::Connection& connection, const BulkHeader& header,
                           const protocol::ChunkOnWire& chunk, Scratch& scratch) {
  const std::size_t bytes = chunk.bytes;
  std::optional<HostBox> box;  // Else its call has failed: thrown away.
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
      if (listener_.writes != nullptr) listener_.writes(listener_.user);
      box = in.destination;
    }
  }
  const bool scattered = box.has_value() && !box->is_dense();
  MutableBytes into;
  if (scattered) {
    scratch.lines.resize(bytes);
    into = scratch.lines;
  } else if (box.has_value()) {
    into = box->reach().subspan(static_cast<std::size_t>(header.offset), bytes);
  }
  Status status = protocol::receive_chunk(connection, chunk, into, scratch.packed);
  if (status.ok() && scattered) write_box(*box, header.offset, into);
  std::uint64_t finished = box.has_value() ? 0 : header.watermark;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = incoming_.find(header.transfer);
    if (box.has_value() && found != incoming_.end()) {
      Incoming& in = found->second;
      --in.writers;
      if (status.ok()) in.received += bytes;
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
  // One that somebody waits for stays until its cancel(), which tells that it did not come.
  if (unattended) cancel(header.transfer);
  return header.watermark == 0 ? Status() : complete(header.watermark);
}

Status Bulk::complete(std::uint64_t watermark) {
  std::uint64_t through = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (watermark <= completed_through_ || !early_completions_.insert(watermark).second ||
        early_completions_.size() > kEarlyCompletionsMax) {
      return Status(Code::kProtocol,
                    "completion " + std::to_string(watermark) + " comes twice or far too early");
    }
    while (!early_completions_.empty() && *early_completions_.begin() == completed_through_ + 1) {
      early_completions_.erase(early_completions_.begin());
      ++completed_through_;
    }
    through = completed_through_;
    if (!lines_.empty()) to_send_.notify_one();  // One that was asked for may have waited for it.
  }
  listener_.completed(listener_.user, through);
  return {};
}

}  // namespace gpurun::client
