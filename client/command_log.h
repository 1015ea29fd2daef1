// CommandLog: the ordered sequence of calls of one session, in a ring. A call gets its number while
// it is appended; its record stays in the ring until the worker has acknowledged it.
//
// Appending is: reserve (a short lock that no wait is made under), write the record, commit. The
// sender takes what is committed without gaps. The ring never waits by itself: reserve() says
// "full" and its caller decides.
//
//   acknowledged_        sent_             tail_
//        |--- retained ---|--- to be sent ---|
//
// The ring is made for links on which much is under way. Where little is, only its first part is
// used, over and over: that is in the caches, and its pages are there.
#pragma once

#include <array>
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
  // Has the kernel make the pages of the part that is used first, where it knows how to: else each
  // costs the call that comes to it some microseconds. Any thread.
  void warm() const noexcept;

  struct Slot {
    std::byte* start = nullptr;  // nullptr: the ring is full.
    std::uint32_t bytes = 0;
    std::uint64_t sequence = 0;
  };
  // Where a call's number is kept beside its record; nullptr: nowhere.
  using Marks = std::array<std::atomic<std::uint64_t>*, 2>;
  // Space for one record of `bytes` (a multiple of 8, at most kRecordBytesMax) and its number,
  // which is stored into `marks`, too: in the order of the numbers, so that none need be compared.
  // What was reserved must be committed soon: everything after it waits. Any thread.
  Slot reserve(std::uint32_t bytes, const Marks& marks = {}) noexcept;
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

  // The sender's: it has read from the log what it sends in another form. Comes before whatever
  // says that the worker has it, which nothing else in this process does.
  void note_read() noexcept { batches_read_.fetch_add(1, std::memory_order_release); }
  // The worker has taken everything through `sequence`. False: a number that was never sent.
  // One thread at a time: who reads the log.
  bool release_through(std::uint64_t sequence) noexcept;

  // Bytes that have been appended and not acknowledged, as it is just now. Any thread.
  std::uint64_t under_way() const noexcept {
    const std::uint64_t acknowledged = acknowledged_.load(std::memory_order_relaxed);
    const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    return tail > acknowledged ? tail - acknowledged : 0;
  }

  std::uint64_t last_sequence() const noexcept {
    return last_sequence_.load(std::memory_order_relaxed);
  }

 private:
  // Whether the record of `bytes` at `position` had better begin the ring anew. Under mutex_.
  bool is_far(std::uint64_t position, std::uint32_t bytes) noexcept;
  std::byte* at(std::uint64_t position) const noexcept { return ring_ + position % ring_bytes_; }

  std::byte* ring_ = nullptr;
  const std::uint64_t ring_bytes_;

  // Positions are absolute byte counts; each group has its own cache line.
  alignas(64) std::mutex mutex_;
  std::atomic<std::uint64_t> tail_{0};
  std::atomic<std::uint64_t> last_sequence_{0};
  std::uint64_t acknowledged_seen_ =
      0;  // Guarded by mutex_: spares a look at the line of who reads.
  // Guarded by mutex_: the most that was under way lately, and the last padding.
  std::uint64_t most_under_way_ = 0;
  std::uint64_t padding_start_ = 0;
  std::uint64_t padding_end_ = 0;
  alignas(64) std::atomic<std::uint64_t> committed_{0};  // Records, ever.
  alignas(64) std::atomic<std::uint64_t> sent_{0};       // Written by the sender alone.
  std::atomic<std::uint64_t> sent_records_{0};
  std::atomic<std::uint64_t> sent_sequence_{0};
  std::atomic<std::uint64_t> batches_read_{0};
  alignas(64) std::atomic<std::uint64_t> acknowledged_{0};  // Written by who reads alone.
};

}  // namespace gpurun::client
