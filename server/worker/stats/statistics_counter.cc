// StatisticsCounter: the counters of the worker, which are added to without locks.
#include "server/worker/stats/statistics_counter.h"

#include <algorithm>
#include <chrono>

#include "driver_abi/row.h"

namespace gpurun::server {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
using Counter = std::atomic<std::uint64_t>;

void add(Counter& counter, std::uint64_t amount) noexcept { counter.fetch_add(amount, kRelaxed); }

void add_time(Counter& sum, Counter& longest, std::uint64_t time) noexcept {
  add(sum, time);
  std::uint64_t most = longest.load(kRelaxed);
  while (most < time && !longest.compare_exchange_weak(most, time, kRelaxed)) {
  }
}

std::uint64_t between(std::uint64_t begin, std::uint64_t end) noexcept {
  return end > begin ? end - begin : 0;
}

std::size_t row_of(std::uint16_t opcode) noexcept { return opcode < limits::kRowsMax ? opcode : 0; }

}  // namespace

std::uint64_t StatisticsCounter::now() noexcept {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

StatisticsCounter::~StatisticsCounter() {
  if (owned_ != nullptr && device_.watch_kernels != nullptr) {
    device_.watch_kernels(nullptr, nullptr);
  }
}

void StatisticsCounter::begin_recording(const Device& device) {
  if (owned_ != nullptr) return;
  device_ = device;
  owned_ = std::make_shared<Recorder>();
  if (device.watch_kernels != nullptr) {
    // Never freed, because a kernel may end after the session.
    device.watch_kernels(
        [](void* user, const driver_abi::KernelRun& run) {
          (*static_cast<std::shared_ptr<Recorder>*>(user))->add_kernel(run);
        },
        new std::shared_ptr<Recorder>(owned_));
  }
  number_launches_.store(device.number_launches, std::memory_order_release);
  recorder_.store(owned_.get(), std::memory_order_release);
}

void StatisticsCounter::record(protocol::Recorded kind, const protocol::RecordHeader& header,
                               std::uint64_t decoded, std::uint64_t begin,
                               std::uint64_t end) noexcept {
  Recorder* const recorder = recorder_.load(std::memory_order_acquire);
  if (recorder == nullptr) return;
  protocol::RecordedEvent event;
  event.kind = kind;
  event.form = static_cast<std::uint8_t>(header.form);
  event.opcode = header.opcode;
  event.thread = header.lane;
  event.sequence = header.sequence;
  event.begin_ns = begin;
  event.end_ns = std::max(begin, end);
  event.stream = header.stream;
  event.subject = static_cast<std::uint64_t>(header.order);
  event.value = decoded;
  recorder->add(event);
}

void StatisticsCounter::ran(const protocol::RecordHeader& header, const Ran& ran) noexcept {
  if (header.opcode == protocol::kStatisticsOpcode) return;
  Function& function = (*functions_)[row_of(header.opcode)];
  add_time(function.driver_ns, function.driver_longest_ns, between(ran.begin, ran.end));
  if (!ran.over) return;
  record(protocol::Recorded::kIssue, header, ran.decoded, ran.begin, ran.end);
  add(function.calls, 1);
  if (ran.failed) add(function.failures, 1);
  add(function.bytes_in, ran.bytes_in);
  add(function.bytes_out, ran.bytes_out);
  add_time(function.queue_ns, function.queue_longest_ns, between(ran.decoded, ran.begin));
}

void StatisticsCounter::waited(const protocol::RecordHeader& header, std::uint64_t begin,
                               std::uint64_t end) noexcept {
  Function& function = (*functions_)[row_of(header.opcode)];
  add_time(function.driver_ns, function.driver_longest_ns, between(begin, end));
  record(protocol::Recorded::kRest, header, 0, begin, end);
}

void StatisticsCounter::replied(const protocol::RecordHeader& header,
                                std::uint64_t bytes) noexcept {
  if (header.opcode == protocol::kStatisticsOpcode) return;
  add((*functions_)[row_of(header.opcode)].bytes_out, bytes);
}

void StatisticsCounter::count_batch(std::uint64_t records, std::uint64_t bytes) noexcept {
  add(batches_, 1);
  add(batch_records_, records);
  add(batch_bytes_, bytes);
  add(batches_by_records_[protocol::size_class(records)], 1);
}

void StatisticsCounter::count_replies(std::uint64_t items, std::uint64_t bytes) noexcept {
  add(reply_frames_, 1);
  add(reply_items_, items);
  add(reply_bytes_, bytes);
  add(frames_by_items_[protocol::size_class(items)], 1);
}

void StatisticsCounter::count_event_told() noexcept { add(events_told_, 1); }

std::string StatisticsCounter::untold() const {
  if (told_.load(kRelaxed)) return {};
  protocol::WorkerStatistics all = statistics();
  constexpr std::size_t kFunctionsSaid = 5;
  std::stable_sort(all.rows.begin(), all.rows.end(), [](const auto& left, const auto& right) {
    return left.driver_ns > right.driver_ns;
  });
  std::string text = "the worker of a process that has left no statistics counted " +
                     std::to_string(all.totals.batch_records) + " calls in " +
                     std::to_string(all.totals.batches) + " batches";
  for (std::size_t i = 0; i < std::min(all.rows.size(), kFunctionsSaid); ++i) {
    const driver_abi::Row* row = driver_abi::find_row(all.rows[i].opcode);
    text += std::string("; ") + (row == nullptr ? "another" : row->symbol) + ": " +
            std::to_string(all.rows[i].calls) + " calls, " +
            std::to_string(all.rows[i].driver_ns / 1000) + " us in the driver, " +
            std::to_string(all.rows[i].queue_ns / 1000) + " us queued";
  }
  return text;
}

protocol::WorkerStatistics StatisticsCounter::statistics() const {
  told_.store(true, kRelaxed);
  protocol::WorkerStatistics result;
  protocol::WorkerTotals& totals = result.totals;
  totals.batches = batches_.load(kRelaxed);
  totals.batch_records = batch_records_.load(kRelaxed);
  totals.batch_bytes = batch_bytes_.load(kRelaxed);
  totals.reply_frames = reply_frames_.load(kRelaxed);
  totals.reply_items = reply_items_.load(kRelaxed);
  totals.reply_bytes = reply_bytes_.load(kRelaxed);
  totals.events_told = events_told_.load(kRelaxed);
  for (std::size_t i = 0; i < protocol::kSizeClasses; ++i) {
    totals.batches_by_records[i] = batches_by_records_[i].load(kRelaxed);
    totals.frames_by_items[i] = frames_by_items_[i].load(kRelaxed);
  }
  for (std::size_t opcode = 0; opcode < functions_->size(); ++opcode) {
    const Function& function = (*functions_)[opcode];
    protocol::WorkerRow row;
    row.opcode = static_cast<std::uint16_t>(opcode);
    row.calls = function.calls.load(kRelaxed);
    row.failures = function.failures.load(kRelaxed);
    row.driver_ns = function.driver_ns.load(kRelaxed);
    row.driver_longest_ns = function.driver_longest_ns.load(kRelaxed);
    row.queue_ns = function.queue_ns.load(kRelaxed);
    row.queue_longest_ns = function.queue_longest_ns.load(kRelaxed);
    row.bytes_in = function.bytes_in.load(kRelaxed);
    row.bytes_out = function.bytes_out.load(kRelaxed);
    if (row.calls != 0 || row.driver_ns != 0) result.rows.push_back(row);
  }
  return result;
}

}  // namespace gpurun::server
