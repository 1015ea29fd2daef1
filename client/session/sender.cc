// Sender: the sending half of the log channel, and the flush rule. A record is sent by the thread
// that waits for its reply, or by the sender thread as soon as that is idle. It is never sent by a
// timer.
#include <array>

#include "base/brief_spin.h"
#include "client/session/session_impl.h"

namespace gpurun::client {
namespace {

// At most one frame, so that a waiting thread does not send megabytes of others before its own
// record.
constexpr std::size_t kBatchBytes = std::size_t{256} << 10;

}  // namespace

bool Session::Impl::take_role() noexcept {
  std::uint32_t free = 0;
  return role.compare_exchange_strong(free, 1, std::memory_order_seq_cst);
}

void Session::Impl::wake_sender() noexcept {
  if (role.load(std::memory_order_seq_cst) == 0) doorbell.ring();
}

void Session::Impl::release_role() noexcept { role.store(0, std::memory_order_seq_cst); }

// Every frame acknowledges, so that threads that wait for replies need not wake the sender for it.
protocol::FrameHeader Session::Impl::frame_header(protocol::FrameKind kind) {
  protocol::FrameHeader header;
  header.kind = kind;
  // Before replies_taken is read: a reply that comes in between is acknowledged twice, never
  // missed.
  acknowledge_due.exchange(false, std::memory_order_acq_rel);
  header.acknowledged = replies_taken.load(std::memory_order_acquire);
  replies_acknowledged.store(header.acknowledged, std::memory_order_relaxed);
  return header;
}

Status Session::Impl::send_empty_frame(protocol::FrameKind kind) {
  const auto header = frame_header(kind);
  const ByteView part = bytes_of(header);
  // Unbounded: a deadline inside a frame would end the connection. The thread that finds the peer
  // silent shuts the connection down, which ends this call.
  return channels.log->send(std::span<const ByteView>(&part, 1), Deadline::never());
}

Status Session::Impl::send_batch(std::uint64_t* last_sequence) {
  const CommandLog::Batch batch = log.collect(kBatchBytes);
  *last_sequence = batch.last_sequence;
  if (batch.part_count == 0) return {};
  const auto records = std::span(batch.parts).first(batch.part_count);
  const protocol::LogPacker::Packed packed = packer.pack(records, batch.bytes);
  log.note_read();
  const std::size_t bytes = packed.packed ? sizeof packed.head + packed.block.size() : batch.bytes;
  stats.count_batch(batch.first_sequence, batch.last_sequence, batch.bytes, bytes);
  auto header = frame_header(packed.packed ? protocol::FrameKind::kPackedRecords
                                           : protocol::FrameKind::kRecords);
  header.payload_bytes = static_cast<std::uint32_t>(bytes);
  header.sequence = batch.first_sequence;
  std::array<ByteView, 3> parts = {bytes_of(header)};
  std::size_t count = 1;
  if (packed.packed) {
    parts[count++] = bytes_of(packed.head);
    parts[count++] = packed.block;
  } else {
    for (const ByteView part : records) parts[count++] = part;
  }
  const bool timed = packer.wants_time(bytes);
  const Clock::time_point start = timed ? Clock::now() : Clock::time_point{};
  // Unbounded for the reason above.
  Status status = channels.log->send(std::span(parts).first(count), Deadline::never());
  if (timed) packer.sent(bytes, Clock::now() - start);
  return status;
}

void Session::Impl::send_log() {
  for (;;) {
    if (!take_role()) return;  // Its holder checks again when it is done.
    Status status;
    const bool beats = heartbeat_due.exchange(false, std::memory_order_acq_rel);
    if (beats) status = send_empty_frame(protocol::FrameKind::kHeartbeat);
    std::uint64_t last = 1;
    while (status.ok() && last != 0) status = send_batch(&last);
    if (status.ok() && acknowledge_due.load(std::memory_order_acquire)) {
      status = send_empty_frame(protocol::FrameKind::kAcknowledge);
    }
    release_role();
    if (!status.ok()) return shutdown.connection_failed(std::move(status));
    if (beats) bulk->trim();
    if (!log.something_to_send()) return;
  }
}

void Session::Impl::send_log_through(std::uint64_t sequence) {
  if (!shutdown.alive() || !take_role()) return;
  Status status;
  std::uint64_t last = 0;
  do {
    status = send_batch(&last);
    // 0: another thread's uncommitted record is before ours, and that thread sends when it commits.
    // Or our record went out before we took the role.
  } while (status.ok() && last != 0 && last < sequence);
  release_role();
  if (!status.ok()) return shutdown.connection_failed(std::move(status));
  const bool life_signs = heartbeat_due.load(std::memory_order_acquire) ||
                          acknowledge_due.load(std::memory_order_acquire);
  if (life_signs || log.something_to_send()) doorbell.ring();
}

void Session::Impl::run_sender() {
  log.warm();
  for (;;) {
    if (!sender_spin.wait([this] { return doorbell.rung(); })) {
      const Clock::time_point start = Clock::now();
      doorbell.wait();
      sender_spin.slept(Clock::now() - start);
    } else {
      doorbell.wait();  // Takes the ring.
    }
    if (shutdown.ending() || !shutdown.alive()) return;
    gather();
    send_log();
  }
}

// Calls come in bursts. A burst often ends with a call that waits, and the waiting thread sends the
// whole burst. So the sender yields for a moment while more calls come. If other threads keep the
// processor for long, the sender gathers nothing for a while.
void Session::Impl::gather() {
  constexpr int kLooksMax = 8;
  if (gather_rest > 0) {
    --gather_rest;
    return;
  }
  std::uint64_t last = log.last_sequence();
  for (int looks = 0; looks < kLooksMax; ++looks) {
    const Clock::time_point left = Clock::now();
    OwnProcessor::yield();
    if (Clock::now() - left >= BriefSpin::kKept) {
      gather_rest = BriefSpin::kRestMax;
      return;
    }
    const std::uint64_t now = log.last_sequence();
    if (now == last) return;
    last = now;
  }
}

}  // namespace gpurun::client
