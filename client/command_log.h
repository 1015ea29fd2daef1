// CommandLog: the ordered sequence of calls of one session, in a ring. A call gets its number while
// it is appended; its record stays in the ring until the worker has acknowledged it.
//
// Appending is: reserve (a short lock that no wait is made under), write the record, commit. The
// sender takes what is committed without gaps. The ring never waits by itself: reserve() says
// "full" and its caller decides.
//
//   acknowledged_        sent_             tail_
//        |--- retained ---|--- to be sent ---|
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "base/bytes.h"
#include "protocol/record.h"

namespace gpurun::client {

class CommandLog {
 public:
  // `byte_count`: a multiple of 4096 that holds at least two of the largest records. `ok()` says
  // whether the memory was to be had; nothing else may be called when not.
  explicit CommandLog(std::size_t byte_count);
  ~CommandLog();
  CommandLog(const CommandLog&) = delete;
  CommandLog& operator=(const CommandLog&) = delete;
  bool ok() const noexcept { return ring_ != nullptr; }

  struct Slot {
    std::byte* start = nullptr;  // nullptr: the ring is full.
    std::uint32_t bytes = 0;
    std::uint64_t sequence = 0;
  };
  // Space for one record of `bytes` (a multiple of 8, at most kRecordBytesMax) and its number. What
  // was reserved must be committed soon: everything after it waits. Any thread.
  Slot reserve(std::uint32_t bytes) noexcept;
  // The record at slot.start is complete. (Its `bytes` field is written here: until then it is 0,
  // which is how the sender knows.) Any thread.
  void commit(const Slot& slot) noexcept;

  // The next stretch of committed, unsent records, without what the ring's end wastes; at most
  // `bytes_max`, at least one record when there is one. Only by the holder of the sending role.
  struct Batch {
    ByteView parts[2];
    std::size_t part_count = 0;
    std::size_t bytes = 0;
    std::uint64_t first_sequence = 0;
    std::uint64_t last_sequence = 0;
  };
  Batch collect(std::size_t bytes_max) noexcept;
  // Whether collect() would find something. Safe to ask after the sending role was given up: either
  // this sees a commit, or that commit's thread sees the role free.
  bool something_to_send() const noexcept;

  // The worker has taken everything through `sequence`. False: a number that was never sent.
  // One thread (the receiver).
  bool release_through(std::uint64_t sequence) noexcept;

  std::uint64_t last_sequence() const noexcept {
    return last_sequence_.load(std::memory_order_relaxed);
  }

 private:
  std::byte* at(std::uint64_t position) const noexcept { return ring_ + position % ring_bytes_; }

  std::byte* ring_ = nullptr;
  const std::uint64_t ring_bytes_;

  // Positions are absolute byte counts; each group has its own cache line.
  alignas(64) std::mutex mutex_;
  std::atomic<std::uint64_t> tail_{0};
  std::atomic<std::uint64_t> last_sequence_{0};
  std::uint64_t acknowledged_seen_ = 0;  // Guarded by mutex_: spares a look at the receiver's line.
  alignas(64) std::atomic<std::uint64_t> committed_{0};  // Records, ever.
  alignas(64) std::atomic<std::uint64_t> sent_{0};       // Written by the sender alone.
  std::atomic<std::uint64_t> sent_records_{0};
  std::atomic<std::uint64_t> sent_sequence_{0};
  alignas(64) std::atomic<std::uint64_t> acknowledged_{0};  // Written by the receiver alone.
};

}  // namespace gpurun::client
