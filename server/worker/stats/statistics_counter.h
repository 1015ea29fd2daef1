// StatisticsCounter: the counters and recordings of a worker, for a client that asked for them
// (protocol/statistics/worker_statistics.h).
//
// Any thread. Other workers have no statistics: they count nothing and read no clock.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "driver_abi/emulated_view.h"
#include "protocol/log/record.h"
#include "protocol/statistics/worker_statistics.h"
#include "server/worker/stats/recorder.h"

namespace gpurun::server {

class StatisticsCounter {
 public:
  // The driver functions that assign a kernel to a call and report when it ran
  // (driver_abi/emulated_view.h). nullptr where the driver has no such function.
  struct Device {
    void (*number_launches)(std::uint64_t number) = nullptr;
    void (*watch_kernels)(driver_abi::KernelRunTold told, void* user) = nullptr;
  };

  StatisticsCounter() = default;
  ~StatisticsCounter();
  StatisticsCounter(const StatisticsCounter&) = delete;
  StatisticsCounter& operator=(const StatisticsCounter&) = delete;

  // From now on every call is recorded too. One thread. A second call does nothing.
  void begin_recording(const Device& device);
  Recorder* recorder() noexcept { return recorder_.load(std::memory_order_acquire); }
  // Later launches of this thread belong to the call of that number. 0: to no call.
  void launches_belong_to(std::uint64_t sequence) noexcept {
    if (const auto number = number_launches_.load(std::memory_order_acquire)) number(sequence);
  }

  // Steady clock, nanoseconds.
  static std::uint64_t now() noexcept;

  // The driver worked on a call from `begin` to `end`. `over`: the call is issued and need not be
  // tried again.
  struct Ran {
    std::uint64_t decoded = 0;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    bool over = true;
    bool failed = false;
    std::uint64_t bytes_in = 0;   // With the record, once the call is over.
    std::uint64_t bytes_out = 0;  // Beside the log.
  };
  void ran(const protocol::RecordHeader& header, const Ran& ran) noexcept;
  // As ran(), for the time that such a call then waited on a helper thread.
  void waited(const protocol::RecordHeader& header, std::uint64_t begin,
              std::uint64_t end) noexcept;
  // The reply to the call carries this many bytes.
  void replied(const protocol::RecordHeader& header, std::uint64_t bytes) noexcept;

  // count_batch(): one frame of `records` came. count_replies(): one frame of `items` was sent.
  void count_batch(std::uint64_t records, std::uint64_t bytes) noexcept;
  void count_replies(std::uint64_t items, std::uint64_t bytes) noexcept;
  void count_event_told() noexcept;

  // Marks the numbers as fetched by the client.
  protocol::WorkerStatistics statistics() const;
  // A line for the worker's own log about numbers that the client did not fetch, because it died or
  // was ended. Empty: they were fetched.
  std::string untold() const;
  void set_told() noexcept { told_.store(true, std::memory_order_relaxed); }

 private:
  void record(protocol::Recorded kind, const protocol::RecordHeader& header, std::uint64_t decoded,
              std::uint64_t begin, std::uint64_t end) noexcept;

  using Counter = std::atomic<std::uint64_t>;
  struct Function {
    Counter calls{0};
    Counter failures{0};
    Counter driver_ns{0};
    Counter driver_longest_ns{0};
    Counter queue_ns{0};
    Counter queue_longest_ns{0};
    Counter bytes_in{0};
    Counter bytes_out{0};
  };

  const std::unique_ptr<std::array<Function, limits::kRowsMax>> functions_ =
      std::make_unique<std::array<Function, limits::kRowsMax>>();
  Device device_;                    // begin_recording() writes it.
  std::shared_ptr<Recorder> owned_;  // begin_recording() writes it.
  std::atomic<Recorder*> recorder_{nullptr};
  std::atomic<void (*)(std::uint64_t)> number_launches_{nullptr};
  mutable std::atomic<bool> told_{false};
  Counter batches_{0};
  Counter batch_records_{0};
  Counter batch_bytes_{0};
  Counter reply_frames_{0};
  Counter reply_items_{0};
  Counter reply_bytes_{0};
  Counter events_told_{0};
  std::array<Counter, protocol::kSizeClasses> batches_by_records_{};
  std::array<Counter, protocol::kSizeClasses> frames_by_items_{};
};

}  // namespace gpurun::server
