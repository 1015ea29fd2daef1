// Stats: counters by function and of the session, added to without locks.
#include "client/stats/stats.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace gpurun::client {
namespace {

using protocol::RecordedEvent;

constexpr auto kRelaxed = std::memory_order_relaxed;

void add(std::atomic<std::uint64_t>& counter, std::uint64_t amount) noexcept {
  counter.fetch_add(amount, kRelaxed);
}

std::uint64_t read(const std::atomic<std::uint64_t>& counter) noexcept {
  return counter.load(kRelaxed);
}

std::uint64_t count_of(std::chrono::nanoseconds time) noexcept {
  return time.count() < 0 ? 0 : static_cast<std::uint64_t>(time.count());
}

std::chrono::nanoseconds time_of(const std::atomic<std::uint64_t>& counter) noexcept {
  return std::chrono::nanoseconds(static_cast<std::int64_t>(read(counter)));
}

}  // namespace

Stats::Stats(bool enabled, bool records) : wanted_(enabled) {
  if (enabled || records) counters_ = std::make_unique<Counters>();
  if (records) recorder_ = std::make_unique<Recorder>();
}

void Stats::count_entry(std::uint16_t opcode) noexcept {
  if (enabled()) add(of(opcode).entries, 1);
}

void Stats::record_entry(std::uint32_t lane, std::uint16_t opcode, std::uint64_t begin) noexcept {
  if (recorder_ == nullptr) return;
  RecordedEvent event;
  event.kind = protocol::Recorded::kEntry;
  event.opcode = opcode;
  event.thread = lane;
  event.begin_ns = begin;
  event.end_ns = Recorder::now();
  recorder_->add(event);
}

void Stats::count(const protocol::RecordHeader& header, std::uint64_t bytes,
                  ByteView payload) noexcept {
  if (!enabled() || header.opcode == protocol::kStatisticsOpcode) return;
  add(of(header.opcode).calls, 1);
  add(of(header.opcode).record_bytes, bytes);
  if (recorder_ == nullptr) return;
  RecordedEvent event;
  event.kind = protocol::Recorded::kAppend;
  event.form = static_cast<std::uint8_t>(header.form);
  event.opcode = header.opcode;
  event.thread = header.lane;
  event.sequence = header.sequence;
  event.begin_ns = event.end_ns = Recorder::now();
  event.stream = header.stream;
  static_assert(offsetof(protocol::LaunchPayload, function) == 0);
  if (header.form == protocol::Form::kLaunch && payload.size() >= sizeof event.subject) {
    std::memcpy(&event.subject, payload.data(), sizeof event.subject);
  }
  event.value = bytes;
  recorder_->add(event);
}

void Stats::record_wait(protocol::Recorded kind, const Waited& waited) noexcept {
  if (recorder_ == nullptr) return;
  RecordedEvent event;
  event.kind = kind;
  event.opcode = waited.opcode;
  event.thread = waited.lane;
  event.sequence = waited.sequence;
  event.end_ns = Recorder::now();
  event.begin_ns = event.end_ns - std::min(event.end_ns, count_of(waited.time));
  recorder_->add(event);
}

void Stats::count_sent(std::uint16_t opcode, std::uint64_t bytes) noexcept {
  if (enabled()) add(of(opcode).sent_bytes, bytes);
}

void Stats::count_received(std::uint16_t opcode, std::uint64_t bytes) noexcept {
  if (enabled()) add(of(opcode).received_bytes, bytes);
}

void Stats::count_pulled(std::uint16_t opcode, std::uint64_t bytes) noexcept {
  if (enabled()) add(of(opcode).pulled_bytes, bytes);
}

void Stats::count_written(std::uint16_t opcode, std::uint64_t bytes) noexcept {
  if (enabled()) add(of(opcode).written_bytes, bytes);
}

void Stats::count_reached(std::uint16_t opcode, std::uint64_t bytes) noexcept {
  if (enabled()) add(of(opcode).reached_bytes, bytes);
}

void Stats::add_wait(Function& function, Nanoseconds waited) noexcept {
  const std::uint64_t time = count_of(waited);
  add(function.waited_ns, time);
  std::uint64_t longest = read(function.longest_ns);
  while (longest < time && !function.longest_ns.compare_exchange_weak(longest, time, kRelaxed)) {
  }
}

void Stats::count_fence(const Waited& waited) noexcept {
  if (!enabled() || waited.opcode == protocol::kStatisticsOpcode) return;
  add(of(waited.opcode).fences, 1);
  add_wait(of(waited.opcode), waited.time);
  record_wait(protocol::Recorded::kFence, waited);
}

void Stats::count_wait(const Waited& waited) noexcept {
  if (!enabled()) return;
  add(of(waited.opcode).waits, 1);
  add_wait(of(waited.opcode), waited.time);
  record_wait(protocol::Recorded::kWait, waited);
}

void Stats::count_full_log() noexcept {
  if (enabled()) add(counters_->full_logs, 1);
}

void Stats::count_full_log_end(Nanoseconds waited) noexcept {
  if (enabled()) add(counters_->full_log_ns, count_of(waited));
}

void Stats::count_batch(std::uint64_t first, std::uint64_t last, std::uint64_t bytes,
                        std::uint64_t wire_bytes) noexcept {
  if (!enabled()) return;
  const std::uint64_t records = last - first + 1;
  if (recorder_ != nullptr) {
    RecordedEvent event;
    event.kind = protocol::Recorded::kBatch;
    event.sequence = first;
    event.subject = last;
    event.begin_ns = event.end_ns = Recorder::now();
    event.value = bytes;
    recorder_->add_batch(event);
  }
  add(counters_->batches, 1);
  add(counters_->batch_records, records);
  add(counters_->batch_bytes, bytes);
  add(counters_->batch_wire_bytes, wire_bytes);
  add(counters_->by_records[protocol::size_class(records)], 1);
  add(counters_->by_bytes[protocol::size_class(bytes)], 1);
}

std::vector<Stats::Row> Stats::rows() const {
  std::vector<Row> result;
  for (std::size_t opcode = 0; enabled() && opcode < kOpcodes; ++opcode) {
    const Function& from = counters_->functions[opcode];
    Row row;
    row.opcode = static_cast<std::uint16_t>(opcode);
    row.entries = read(from.entries);
    row.calls = read(from.calls);
    row.fences = read(from.fences);
    row.waits = read(from.waits);
    row.record_bytes = read(from.record_bytes);
    row.sent_bytes = read(from.sent_bytes);
    row.received_bytes = read(from.received_bytes);
    row.reached_bytes = read(from.reached_bytes);
    row.pulled_bytes = read(from.pulled_bytes);
    row.written_bytes = read(from.written_bytes);
    row.waited = time_of(from.waited_ns);
    row.longest = time_of(from.longest_ns);
    if (row.calls != 0 || row.entries != 0) result.push_back(row);
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const Row& left, const Row& right) { return left.waited > right.waited; });
  return result;
}

Stats::Batches Stats::batches() const {
  Batches result;
  if (!enabled()) return result;
  result.count = read(counters_->batches);
  result.records = read(counters_->batch_records);
  result.bytes = read(counters_->batch_bytes);
  result.wire_bytes = read(counters_->batch_wire_bytes);
  for (std::size_t i = 0; i < kSizes; ++i) {
    result.by_records[i] = read(counters_->by_records[i]);
    result.by_bytes[i] = read(counters_->by_bytes[i]);
  }
  result.full_logs = read(counters_->full_logs);
  result.full_log_waited = time_of(counters_->full_log_ns);
  result.sender_sleeps = read(counters_->sender_bell.sleeps);
  result.sender_wakes = read(counters_->sender_bell.wakes);
  return result;
}

}  // namespace gpurun::client
