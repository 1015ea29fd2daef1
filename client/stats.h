// Stats: what a session counted per function, for GPURUN_STATS=1 and `gpurun --stats`.
//
// Counting is any thread's, without locks; nothing is counted when it is off.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace gpurun::client {

class Stats {
 public:
  explicit Stats(bool enabled);
  bool enabled() const noexcept { return rows_ != nullptr; }

  // The program called the function, whether or not that sends anything.
  void count_entry(std::uint16_t opcode) noexcept;
  // A call of `opcode` was appended with a record of `bytes`.
  void count(std::uint16_t opcode, std::uint64_t bytes) noexcept;
  // That much of it travelled as bulk.
  void count_bytes(std::uint16_t opcode, std::uint64_t bytes) noexcept;
  // Its thread waited that long for a reply.
  void count_fence(std::uint16_t opcode, std::chrono::nanoseconds waited) noexcept;
  // Its thread waited that long for something that the worker tells unasked: nothing was sent.
  void count_wait(std::uint16_t opcode, std::chrono::nanoseconds waited) noexcept;

  struct Row {
    std::uint16_t opcode = 0;
    std::uint64_t entries = 0;
    std::uint64_t calls = 0;
    std::uint64_t fences = 0;
    std::uint64_t waits = 0;
    std::uint64_t bytes = 0;
    std::chrono::nanoseconds waited{0};
  };
  // What was called or sent at all, longest wait first.
  std::vector<Row> rows() const;

 private:
  struct Counters {
    std::atomic<std::uint64_t> entries{0};
    std::atomic<std::uint64_t> calls{0};
    std::atomic<std::uint64_t> fences{0};
    std::atomic<std::uint64_t> waits{0};
    std::atomic<std::uint64_t> bytes{0};
    std::atomic<std::uint64_t> waited_ns{0};
  };
  static constexpr std::size_t kOpcodes = 4096;  // Further ones share the row of opcode 0.
  Counters& of(std::uint16_t opcode) noexcept { return rows_[opcode < kOpcodes ? opcode : 0]; }

  std::unique_ptr<Counters[]> rows_;
};

}  // namespace gpurun::client
