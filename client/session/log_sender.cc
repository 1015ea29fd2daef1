// LogSender: the frames of the log, and the threads that send them.
#include "client/session/log_sender.h"

#include <array>
#include <span>
#include <utility>

namespace gpurun::client {
namespace {

// At most one frame, so that a waiting thread does not send megabytes of others before its own
// record.
constexpr std::size_t kBatchBytes = std::size_t{256} << 10;
// Replies that the worker keeps until the client acknowledges them.
constexpr std::uint64_t kUnacknowledgedRepliesMax = 64;

}  // namespace

LogSender::LogSender(CommandLog& log, transport::Connection& connection, Bulk& bulk,
                     SessionShutdown& shutdown, Stats& stats, const SessionOptions& options)
    : log_(log),
      connection_(connection),
      bulk_(bulk),
      shutdown_(shutdown),
      stats_(stats),
      packer_(options.packed_records),
      spin_(options.spin) {
  doorbell_.count_into(stats_.sender_bell());
}

Status LogSender::start() {
  return thread_.start(
      "gpurun-send",
      [](void* of) -> void* {
        static_cast<LogSender*>(of)->run();
        return nullptr;
      },
      this);
}

bool LogSender::take_role() noexcept {
  std::uint32_t free = 0;
  return role_.compare_exchange_strong(free, 1, std::memory_order_seq_cst);
}

void LogSender::release_role() noexcept { role_.store(0, std::memory_order_seq_cst); }

// Every frame acknowledges, so that threads that wait for replies need not wake the sender for it.
protocol::FrameHeader LogSender::frame_header(protocol::FrameKind kind) {
  protocol::FrameHeader header;
  header.kind = kind;
  // Before replies_taken is read: a reply that comes in between is acknowledged twice, never
  // missed.
  acknowledge_due_.exchange(false, std::memory_order_acq_rel);
  header.acknowledged = replies_taken_.load(std::memory_order_acquire);
  replies_acknowledged_.store(header.acknowledged, std::memory_order_relaxed);
  return header;
}

Status LogSender::send_empty_frame(protocol::FrameKind kind) {
  const auto header = frame_header(kind);
  const ByteView part = bytes_of(header);
  // Unbounded: a deadline inside a frame would end the connection. The thread that finds the peer
  // silent shuts the connection down, which ends this call.
  return connection_.send(std::span<const ByteView>(&part, 1), Deadline::never());
}

Status LogSender::send_batch(std::uint64_t* last_sequence, transport::WatchPause* pause) {
  const CommandLog::Batch batch = log_.collect(kBatchBytes);
  *last_sequence = batch.last_sequence;
  if (batch.part_count == 0) return {};
  const auto records = std::span(batch.parts).first(batch.part_count);
  const protocol::LogPacker::Packed packed = packer_.pack(records, batch.bytes);
  log_.note_read();
  const std::size_t bytes = packed.packed ? sizeof packed.head + packed.block.size() : batch.bytes;
  stats_.count_batch(batch.first_sequence, batch.last_sequence, batch.bytes, bytes);
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
  const bool timed = packer_.wants_time(bytes);
  const Clock::time_point start = timed ? Clock::now() : Clock::time_point{};
  // Unbounded for the reason above.
  const auto frame = std::span<const ByteView>(parts).first(count);
  Status status = pause == nullptr ? connection_.send(frame, Deadline::never())
                                   : connection_.send_paused(frame, Deadline::never(), *pause);
  if (timed) packer_.sent(bytes, Clock::now() - start);
  return status;
}

void LogSender::send_all() {
  for (;;) {
    if (!take_role()) return;  // Its holder checks again when it is done.
    Status status;
    const bool beats = heartbeat_due_.exchange(false, std::memory_order_acq_rel);
    if (beats) status = send_empty_frame(protocol::FrameKind::kHeartbeat);
    std::uint64_t last = 1;
    while (status.ok() && last != 0) status = send_batch(&last, nullptr);
    if (status.ok() && acknowledge_due_.load(std::memory_order_acquire)) {
      status = send_empty_frame(protocol::FrameKind::kAcknowledge);
    }
    release_role();
    if (!status.ok()) return shutdown_.connection_failed(std::move(status));
    if (beats) bulk_.trim();
    if (!log_.something_to_send()) return;
  }
}

void LogSender::send_through(std::uint64_t sequence, transport::WatchPause& pause) {
  if (!shutdown_.alive() || !take_role()) return;
  Status status;
  std::uint64_t last = 0;
  do {
    status = send_batch(&last, &pause);
    // 0: another thread's uncommitted record is before ours, and that thread sends when it commits.
    // Or our record went out before we took the role.
  } while (status.ok() && last != 0 && last < sequence);
  release_role();
  if (!status.ok()) {
    pause.end();  // The receiver thread reads the reason.
    return shutdown_.connection_failed(std::move(status));
  }
  const bool life_signs = heartbeat_due_.load(std::memory_order_acquire) ||
                          acknowledge_due_.load(std::memory_order_acquire);
  if (life_signs || log_.something_to_send()) doorbell_.ring();
}

void LogSender::acknowledge_many() noexcept {
  const std::uint64_t taken = replies_taken_.load(std::memory_order_relaxed);
  const std::uint64_t acknowledged = replies_acknowledged_.load(std::memory_order_relaxed);
  if (taken - acknowledged >= kUnacknowledgedRepliesMax &&
      !acknowledge_due_.exchange(true, std::memory_order_acq_rel)) {
    doorbell_.ring();
  }
}

void LogSender::run() {
  log_.warm();
  for (;;) {
    if (!spin_.wait([this] { return doorbell_.rung(); })) {
      const Clock::time_point start = Clock::now();
      doorbell_.wait();
      spin_.slept(Clock::now() - start);
    } else {
      doorbell_.wait();  // Takes the ring.
    }
    if (shutdown_.ending() || !shutdown_.alive()) return;
    gather();
    send_all();
  }
}

// Calls come in bursts. A burst often ends with a call that waits, and the waiting thread sends the
// whole burst. So the sender yields for a moment while more calls come. If other threads keep the
// processor for long, the sender gathers nothing for a while.
void LogSender::gather() {
  constexpr int kLooksMax = 8;
  if (gather_rest_ > 0) {
    --gather_rest_;
    return;
  }
  std::uint64_t last = log_.last_sequence();
  for (int looks = 0; looks < kLooksMax; ++looks) {
    const Clock::time_point left = Clock::now();
    OwnProcessor::yield();
    if (Clock::now() - left >= BriefSpin::kKept) {
      gather_rest_ = BriefSpin::kRestMax;
      return;
    }
    const std::uint64_t now = log_.last_sequence();
    if (now == last) return;
    last = now;
  }
}

}  // namespace gpurun::client
