// SlotQueue: the slots that hold bytes which have come and are not taken, in their order. It is for
// devices that only send and receive.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "transport/rdma/queue_pair.h"

namespace gpurun::transport::rdma {

struct FilledSlot {
  std::uint32_t index = 0;
  std::uint32_t bytes = 0;
  std::uint64_t end = 0;  // The position behind its bytes.
};

class SlotQueue {
 public:
  bool empty() const noexcept { return count_ == 0; }
  const FilledSlot& front() const noexcept { return slots_[first_]; }
  void pop() noexcept {
    first_ = (first_ + 1) % kSlots;
    --count_;
  }
  // Each slot is here at most once, so there is room.
  void push(const FilledSlot& slot) noexcept {
    slots_[(first_ + count_) % kSlots] = slot;
    ++count_;
  }

 private:
  std::array<FilledSlot, kSlots> slots_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

}  // namespace gpurun::transport::rdma
