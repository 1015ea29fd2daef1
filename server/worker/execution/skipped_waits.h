// SkippedWaits: whether work that a query has found complete need not be waited for in the driver.
//
// Such a wait has two effects besides its result. It releases the output of kernels, and it lets
// memory pools return unused memory (manual, cuMemPoolSetAttribute: at the next synchronisation).
// The worker leaves the wait out until the session loads code that may print or uses a pool.
//
// Any thread.
#pragma once

#include <atomic>

namespace gpurun::server {

class SkippedWaits {
 public:
  bool allowed() const noexcept { return allowed_.load(std::memory_order_acquire); }
  // From now on every wait reaches the driver. Call before the load or the allocation.
  void forbid() noexcept { allowed_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> allowed_{true};
};

}  // namespace gpurun::server
