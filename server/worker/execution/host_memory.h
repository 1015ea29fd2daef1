// HostMemory: which addresses are host memory of the client that this process maps, and the driver
// knows (docs/adr/0040). The client names any address in a copy. An address that is not here goes
// to the driver as one of the device, so that no copy reads other memory of this process.
//
// Any thread. A copy looks without a lock while there is no such memory near its addresses.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <shared_mutex>

namespace gpurun::server {

// The side of a copy, as the driver steps through it. The distances of single lines and slices mean
// nothing.
struct HostSide {
  std::uint64_t address = 0;
  std::uint64_t width = 0;  // Bytes of a line.
  std::uint64_t lines = 1;
  std::uint64_t slices = 1;
  std::uint64_t line_pitch = 0;   // Bytes from line to line,
  std::uint64_t slice_pitch = 0;  // and from slice to slice.
};

class HostMemory {
 public:
  HostMemory() = default;
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  void add(std::uint64_t address, std::uint64_t bytes) {
    const std::unique_lock lock(mutex_);
    blocks_[address] = bytes;
    if (address < start_.load()) start_.store(address);
    if (address + bytes > end_.load()) end_.store(address + bytes);
  }
  void remove(std::uint64_t address) {
    const std::unique_lock lock(mutex_);
    blocks_.erase(address);
  }
  // Whether one block holds all of the side. The answer is no for a side without bytes, and for a
  // side in which lines or slices overlap.
  bool covers(const HostSide& side) const {
    const bool boxed = side.lines > 1 || side.slices > 1;
    std::uint64_t slices = 0, lines = 0, slice = 0, all = 0;
    return side.width != 0 && side.lines != 0 && side.slices != 0 &&
           (!boxed || side.line_pitch >= side.width) &&
           !__builtin_mul_overflow(side.lines - 1, side.line_pitch, &lines) &&
           !__builtin_add_overflow(lines, side.width, &slice) &&
           (side.slices == 1 || side.slice_pitch >= slice) &&
           !__builtin_mul_overflow(side.slices - 1, side.slice_pitch, &slices) &&
           !__builtin_add_overflow(slices, slice, &all) && covers(side.address, all);
  }
  // Whether one block holds all of [address, address + bytes).
  bool covers(std::uint64_t address, std::uint64_t bytes) const {
    if (address < start_.load(std::memory_order_acquire) ||
        address >= end_.load(std::memory_order_acquire)) {
      return false;
    }
    const std::shared_lock lock(mutex_);
    auto next = blocks_.upper_bound(address);
    if (next == blocks_.begin()) return false;
    --next;
    const std::uint64_t offset = address - next->first;
    return offset < next->second && bytes <= next->second - offset;
  }

 private:
  // All blocks ever lie between them.
  std::atomic<std::uint64_t> start_{~std::uint64_t{0}};
  std::atomic<std::uint64_t> end_{0};
  mutable std::shared_mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> blocks_;  // Bytes by address. Guarded by mutex_.
};

}  // namespace gpurun::server
