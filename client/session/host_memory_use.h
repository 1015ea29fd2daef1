// HostMemoryUse: what may read or write the program's memory beside its own threads, now or later.
// Copies from the device, host functions and graphs may. Another process may look at shared memory.
//
// A call that CUDA completes before it returns may be answered early only while none of this is
// outstanding. Any thread, without a lock of its own.
#pragma once

#include <atomic>
#include <cstddef>

#include "base/bytes.h"
#include "client/bulk/bulk.h"
#include "client/session/graph_host.h"
#include "client/session/session_types.h"

namespace gpurun::client {

class HostMemoryUse {
 public:
  HostMemoryUse(const Bulk& bulk, const GraphHost& graphs, const SessionOptions& options) noexcept
      : bulk_(bulk), graphs_(graphs), options_(options) {}
  HostMemoryUse(const HostMemoryUse&) = delete;
  HostMemoryUse& operator=(const HostMemoryUse&) = delete;

  // See Session.
  bool write_outstanding() const noexcept { return bulk_.outstanding() || functions_may_write(); }
  bool may_still_write(ByteView memory) const noexcept {
    return bulk_.outstanding(memory) || functions_may_write();
  }
  bool graphs_touch_memory() const noexcept { return graphs_.may_touch(); }
  bool may_answer_early() const noexcept {
    return shared_.load() == 0 && !options_.every_call_is_a_fence && !write_outstanding() &&
           !graphs_touch_memory();
  }

  std::size_t add_host_function() noexcept { return host_functions_.fetch_add(1); }
  void end_host_function() noexcept { host_functions_.fetch_sub(1); }

  void share() noexcept { shared_.fetch_add(1); }
  void unshare() noexcept { shared_.fetch_sub(1); }
  bool is_shared() const noexcept { return shared_.load(std::memory_order_acquire) != 0; }

 private:
  bool functions_may_write() const noexcept {
    return host_functions_.load(std::memory_order_acquire) != 0 || graphs_.may_write();
  }

  const Bulk& bulk_;
  const GraphHost& graphs_;
  const SessionOptions& options_;
  std::atomic<int> shared_{0};
  std::atomic<std::size_t> host_functions_{0};
};

}  // namespace gpurun::client
