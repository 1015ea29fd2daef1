// HandleSet: a few handles, which any thread adds, removes and visits without a lock.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include "client/log/handles.h"

namespace gpurun::client {

// A handle that is added by two threads at once may be there twice until remove().
template <std::size_t kCapacity>
class HandleSet {
 public:
  using All = std::array<Handle, kCapacity>;

  // False: there is no room.
  bool add(Handle handle) noexcept {
    for (std::atomic<Handle>& each : handles_) {
      Handle known = each.load(std::memory_order_relaxed);
      if (known == handle) return true;
      if (known == 0 && (each.compare_exchange_strong(known, handle) || known == handle)) {
        return true;
      }
    }
    return false;
  }
  void remove(Handle handle) noexcept {
    remove_if([handle](Handle each) { return each == handle; });
  }
  // Other threads must not add handles for which `ends` returns true.
  template <typename Ends>
  void remove_if(Ends ends) noexcept {
    for (std::atomic<Handle>& each : handles_) {
      Handle known = each.load();
      if (known != 0 && ends(known)) (void)each.compare_exchange_strong(known, 0);
    }
  }
  // 0 fills the rest.
  All all() const noexcept {
    All handles{};
    for (std::size_t i = 0; i < kCapacity; ++i) handles[i] = handles_[i].load();
    return handles;
  }
  template <typename Is>
  bool any(Is is) const noexcept {
    for (const std::atomic<Handle>& each : handles_) {
      const Handle handle = each.load(std::memory_order_acquire);
      if (handle != 0 && is(handle)) return true;
    }
    return false;
  }

 private:
  std::array<std::atomic<Handle>, kCapacity> handles_{};
};

}  // namespace gpurun::client
