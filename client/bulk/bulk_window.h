// BulkWindow: the memory for bytes under way to the worker, in slots of one chunk.
//
// A slot is also the credit of its chunk. A chunk that is sent from the program's memory takes one
// and leaves its memory alone. The worker's receipt returns the slot. A receipt may come while the
// send of the slot has not returned. The slot is then freed when the send has.
//
// One thread at a time. Bulk locks, except where a comment says otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "protocol/limits.h"

namespace gpurun::client {

class BulkWindow {
 public:
  static constexpr std::size_t kSlots = limits::kBulkWindowBytes / limits::kBulkChunkBytes;

  BulkWindow() = default;
  ~BulkWindow();
  BulkWindow(const BulkWindow&) = delete;
  BulkWindow& operator=(const BulkWindow&) = delete;

  // Call it before anything else. kResourceExhausted: no memory.
  Status map();

  // The memory of a slot that the caller has taken. Without the lock.
  std::byte* start_of(std::size_t slot) const noexcept {
    return memory_ + slot * limits::kBulkChunkBytes;
  }
  std::size_t free_count() const noexcept { return free_.size(); }
  // Takes a slot. One must be free.
  std::size_t take();
  // Frees a slot that was not sent.
  void give_back(std::size_t slot) { free_.push_back(slot); }

  // Around the send of a slot. end_send() returns whether that has freed the slot.
  void begin_send(std::size_t slot) { sending_.push_back({slot, false}); }
  bool end_send(std::size_t slot);
  // The worker needs the slot no more.
  void retire(std::size_t slot);

  // Returns the memory to the system if nothing is under way and `begun` is as at the last call.
  // `begun` is the number of transfers that ever began.
  void trim(std::uint64_t begun) noexcept;

 private:
  struct Sending {
    std::size_t slot;
    bool retired;
  };

  std::byte* memory_ = nullptr;
  std::vector<std::size_t> free_;
  std::vector<Sending> sending_;
  bool has_memory_ = false;
  std::uint64_t begun_before_trim_ = 0;
};

}  // namespace gpurun::client
