// CommandLog: the ordered sequence of calls of one session, in a ring. A call gets its number while
// it is appended. Its record stays in the ring until the worker has acknowledged it.
//
// To append, reserve a slot (a short lock, never held over a wait), write the record, and commit.
// The sender takes committed records up to the first gap. The ring never waits by itself: reserve()
// returns "full" and its caller decides.
//
//   acknowledged_        sent_             tail_
//        |--- retained ---|--- to be sent ---|
//
// The ring is sized for links with much under way. If little is under way, only its first part is
// used, over and over. That part stays in the caches, and its pages exist.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "base/bytes.h"
#include "protocol/log/record.h"

namespace gpurun::client {

class CommandLog {
 public:
  // `byte_count`: a multiple of 4096 that holds at least two of the largest records. If the memory
  // could not be allocated, `ok()` is false and nothing else may be called.
  explicit CommandLog(std::size_t byte_count);
  ~CommandLog();
  CommandLog(const CommandLog&) = delete;
  CommandLog& operator=(const CommandLog&) = delete;
  bool ok() const noexcept { return ring_ != nullptr; }
  // Makes the kernel allocate the pages of the part that is used first, if it can. Without this,
  // calls would pay for the page faults. Any thread.
  void warm() const noexcept;

  struct Slot {
    std::byte* start = nullptr;  // nullptr: the ring is full.
    std::uint32_t bytes = 0;
    std::uint64_t sequence = 0;
  };
  // Where a call's number is stored beside its record. nullptr: nowhere.
  using Marks = std::array<std::atomic<std::uint64_t>*, 2>;
  // Space for one record of `bytes` (a multiple of 8, at most kRecordBytesMax), and its number. The
  // number is also stored into `marks`. Numbers are stored there in order, so no comparison is
  // needed. A reserved slot must be committed soon, because everything after it waits. Any thread.
  Slot reserve(std::uint32_t bytes, const Marks& marks = {}) noexcept;
  // The record at slot.start is complete. commit() writes its `bytes` field, which is 0 until then.
  // That is how the sender knows. Any thread.
  void commit(const Slot& slot) noexcept;

  // The next run of committed, unsent records, without the waste at the ring's end. It has at most
  // `bytes_max`, but at least one record if there is one. Only for the holder of the sending role.
  struct Batch {
    ByteView parts[2];
    std::size_t part_count = 0;
    std::size_t bytes = 0;
    std::uint64_t first_sequence = 0;
    std::uint64_t last_sequence = 0;
  };
  Batch collect(std::size_t bytes_max) noexcept;
  // Returns whether collect() would find something. Safe after the sending role was given up:
  // either this sees a commit, or that commit's thread sees the role free.
  bool something_to_send() const noexcept;

  // For the sender: it has read the records that it sends in another form. Call it before the send.
  // It orders these reads before the worker's acknowledgement, and nothing else in this process
  // does.
  void note_read() noexcept { batches_read_.fetch_add(1, std::memory_order_release); }
  // The worker has taken everything through `sequence`. Returns false for a number that was never
  // sent. Only for the thread that reads the log.
  bool release_through(std::uint64_t sequence) noexcept;

  // The bytes that were appended and not acknowledged, at this moment. Any thread.
  std::uint64_t under_way() const noexcept {
    const std::uint64_t acknowledged = acknowledged_.load(std::memory_order_relaxed);
    const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    return tail > acknowledged ? tail - acknowledged : 0;
  }

  std::uint64_t last_sequence() const noexcept {
    return last_sequence_.load(std::memory_order_relaxed);
  }

 private:
  // Returns whether the record of `bytes` at `position` should go to the ring's start. Under
  // mutex_.
  bool is_far(std::uint64_t position, std::uint32_t bytes) noexcept;
  std::byte* at(std::uint64_t position) const noexcept { return ring_ + position % ring_bytes_; }

  std::byte* ring_ = nullptr;
  const std::uint64_t ring_bytes_;

  // Positions are absolute byte counts. Each group has its own cache line.
  alignas(64) std::mutex mutex_;
  std::atomic<std::uint64_t> tail_{0};
  std::atomic<std::uint64_t> last_sequence_{0};
  std::uint64_t acknowledged_seen_ =
      0;  // Guarded by mutex_. Spares a read of the reading thread's line.
  // Guarded by mutex_: the most that was under way lately, and the last padding.
  std::uint64_t most_under_way_ = 0;
  std::uint64_t padding_start_ = 0;
  std::uint64_t padding_end_ = 0;
  alignas(64) std::atomic<std::uint64_t> committed_{0};  // Records, ever.
  alignas(64) std::atomic<std::uint64_t> sent_{0};       // Written by the sender only.
  std::atomic<std::uint64_t> sent_records_{0};
  std::atomic<std::uint64_t> sent_sequence_{0};
  std::atomic<std::uint64_t> batches_read_{0};
  alignas(64) std::atomic<std::uint64_t> acknowledged_{0};  // Written by the reading thread only.
};

}  // namespace gpurun::client
