// Stats: what a session counts, per function and in total, for GPURUN_STATS=1 and `gpurun --stats`.
// It also owns the recorder for `gpurun --trace`.
//
// Any thread counts, without locks, by relaxed additions. When counting is off nothing is counted,
// and the check is one load that never changes. A session that records also counts.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "client/process/doorbell.h"
#include "client/stats/recorder.h"
#include "protocol/log/record.h"
#include "protocol/statistics/worker_statistics.h"

namespace gpurun::client {

class Stats {
 public:
  using Nanoseconds = std::chrono::nanoseconds;

  explicit Stats(bool enabled, bool records = false);
  bool enabled() const noexcept { return counters_ != nullptr; }
  bool wanted() const noexcept { return wanted_; }           // Asked for, not only recorded.
  Recorder* recorder() noexcept { return recorder_.get(); }  // nullptr: nothing is recorded.

  // The program called the function, whether or not that sends anything.
  void count_entry(std::uint16_t opcode) noexcept;
  // The program was in the function from `begin` on, by the clock of now().
  void record_entry(std::uint32_t lane, std::uint16_t opcode, std::uint64_t begin) noexcept;
  // A call was appended with a record of `bytes`. `payload` is a launch's, as far as it goes.
  void count(const protocol::RecordHeader& header, std::uint64_t bytes, ByteView payload) noexcept;
  // Bytes of the call that travelled beside its record, to the worker and from it.
  void count_sent(std::uint16_t opcode, std::uint64_t bytes) noexcept;
  void count_received(std::uint16_t opcode, std::uint64_t bytes) noexcept;
  // Bytes of the call that the device moves from or to memory of this process by itself
  // (docs/adr/0040). None of them travels.
  void count_reached(std::uint16_t opcode, std::uint64_t bytes) noexcept;
  // The lane's thread has waited so long for the reply to the call of that number.
  struct Waited {
    std::uint16_t opcode = 0;
    std::uint32_t lane = 0;
    std::uint64_t sequence = 0;
    Nanoseconds time{0};
  };
  void count_fence(const Waited& waited) noexcept;
  // As count_fence(), for news that the worker sends unasked: nothing was sent.
  void count_wait(const Waited& waited) noexcept;
  // A thread begins to wait for room in the command log, and has then waited so long.
  void count_full_log() noexcept;
  void count_full_log_end(Nanoseconds waited) noexcept;
  // One frame of these calls, with `bytes` of records, was sent in `wire_bytes`.
  void count_batch(std::uint64_t first, std::uint64_t last, std::uint64_t bytes,
                   std::uint64_t wire_bytes) noexcept;
  // The sender's doorbell counts here. nullptr when nothing is counted.
  Doorbell::Counts* sender_bell() noexcept {
    return counters_ == nullptr ? nullptr : &counters_->sender_bell;
  }

  // Of count_sent(), bytes that the worker reads out of this process's memory (docs/adr/0048).
  void count_pulled(std::uint16_t opcode, std::uint64_t bytes) noexcept;
  // Of count_received(), bytes that the worker is to write into this process's memory
  // (docs/adr/0054).
  void count_written(std::uint16_t opcode, std::uint64_t bytes) noexcept;

  struct Row {
    std::uint16_t opcode = 0;
    std::uint64_t entries = 0;
    std::uint64_t calls = 0;
    std::uint64_t fences = 0;
    std::uint64_t waits = 0;
    std::uint64_t record_bytes = 0;
    std::uint64_t sent_bytes = 0;      // Beside the records.
    std::uint64_t received_bytes = 0;  // Beside the replies.
    std::uint64_t reached_bytes = 0;   // Not sent: the device moves them.
    std::uint64_t pulled_bytes = 0;    // Of sent_bytes: the worker reads them by RDMA.
    std::uint64_t written_bytes = 0;   // Of received_bytes: the worker writes them by RDMA.
    Nanoseconds waited{0};             // In fences and waits.
    Nanoseconds longest{0};            // The longest one.

    std::uint64_t bytes() const noexcept { return record_bytes + sent_bytes + received_bytes; }
  };
  // Everything that was called or sent, longest wait first.
  std::vector<Row> rows() const;

  // How many batches had a size in each class (protocol::size_class()).
  static constexpr std::size_t kSizes = protocol::kSizeClasses;
  using Sizes = std::array<std::uint64_t, kSizes>;
  struct Batches {
    std::uint64_t count = 0;
    std::uint64_t records = 0;
    std::uint64_t bytes = 0;
    std::uint64_t wire_bytes = 0;  // As sent: less if packed.
    Sizes by_records{};
    Sizes by_bytes{};
    std::uint64_t full_logs = 0;  // How often a thread waited for room.
    Nanoseconds full_log_waited{0};
    std::uint64_t sender_sleeps = 0;  // System calls of the sending thread and of its wakers.
    std::uint64_t sender_wakes = 0;
  };
  Batches batches() const;

 private:
  using Counter = std::atomic<std::uint64_t>;
  struct Function {
    Counter entries{0};
    Counter calls{0};
    Counter fences{0};
    Counter waits{0};
    Counter record_bytes{0};
    Counter sent_bytes{0};
    Counter received_bytes{0};
    Counter reached_bytes{0};
    Counter pulled_bytes{0};
    Counter written_bytes{0};
    Counter waited_ns{0};
    Counter longest_ns{0};
  };
  static constexpr std::size_t kOpcodes = 4096;  // Further ones share the row of opcode 0.
  struct Counters {
    std::array<Function, kOpcodes> functions;
    // One thread at a time sends.
    alignas(64) Counter batches{0};
    Counter batch_records{0};
    Counter batch_bytes{0};
    Counter batch_wire_bytes{0};
    std::array<Counter, kSizes> by_records{};
    std::array<Counter, kSizes> by_bytes{};
    alignas(64) Counter full_logs{0};
    Counter full_log_ns{0};
    alignas(64) Doorbell::Counts sender_bell;
  };
  Function& of(std::uint16_t opcode) noexcept {
    return counters_->functions[opcode < kOpcodes ? opcode : 0];
  }
  void add_wait(Function& function, Nanoseconds waited) noexcept;
  void record_wait(protocol::Recorded kind, const Waited& waited) noexcept;

  const bool wanted_;
  std::unique_ptr<Counters> counters_;
  std::unique_ptr<Recorder> recorder_;
};

}  // namespace gpurun::client
