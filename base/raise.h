// raise(): lifts an atomic number to a value, unless it is higher already.
#pragma once

#include <atomic>
#include <cstdint>

namespace gpurun {

// Any thread. The number never falls.
inline void raise(std::atomic<std::uint64_t>& to, std::uint64_t value) noexcept {
  std::uint64_t last = to.load(std::memory_order_relaxed);
  while (last < value && !to.compare_exchange_weak(last, value, std::memory_order_acq_rel)) {
  }
}

}  // namespace gpurun
