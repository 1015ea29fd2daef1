// HostMemoryUse: what may read or write the program's memory beside its own threads, now or later.
// Copies from the device, host functions and graphs may. Another process may look at shared memory.
// Any thread, without a lock of its own.
#pragma once

#include <atomic>
#include <cstddef>

#include "base/bytes.h"
#include "client/bulk/bulk.h"

namespace gpurun::client {

// The graphs' operations in this process. GraphHost counts them.
class GraphMemoryUse {
 public:
  void begin(bool writes) noexcept {
    living_.fetch_add(1, std::memory_order_release);
    if (writes) writers_.fetch_add(1, std::memory_order_release);
  }
  void end(bool writes) noexcept {
    if (writes) writers_.fetch_sub(1, std::memory_order_release);
    living_.fetch_sub(1, std::memory_order_release);
  }
  // True while there are functions, or copies into the program's memory. Graphs may then write
  // there at any time.
  bool may_write() const noexcept { return writers_.load(std::memory_order_acquire) != 0; }
  // True while a graph lives that reads or writes the program's memory, which it may do at any
  // time.
  bool may_touch() const noexcept { return living_.load(std::memory_order_acquire) != 0; }

 private:
  std::atomic<std::size_t> living_{0};
  std::atomic<std::size_t> writers_{0};
};

class HostMemoryUse {
 public:
  HostMemoryUse(const Bulk& bulk, const GraphMemoryUse& graphs) noexcept
      : bulk_(bulk), graphs_(graphs) {}
  HostMemoryUse(const HostMemoryUse&) = delete;
  HostMemoryUse& operator=(const HostMemoryUse&) = delete;

  // See Session.
  bool write_outstanding() const noexcept { return bulk_.outstanding() || functions_may_write(); }
  bool may_still_write(ByteView memory) const noexcept {
    return bulk_.outstanding(memory) || functions_may_write();
  }
  bool graphs_touch_memory() const noexcept { return graphs_.may_touch(); }

  std::size_t add_host_function() noexcept { return host_functions_.fetch_add(1); }
  void end_host_function() noexcept { host_functions_.fetch_sub(1); }

  void share() noexcept { shared_.fetch_add(1); }
  void unshare() noexcept { shared_.fetch_sub(1); }
  bool is_shared() const noexcept { return shared_.load() != 0; }

 private:
  bool functions_may_write() const noexcept {
    return host_functions_.load(std::memory_order_acquire) != 0 || graphs_.may_write();
  }

  const Bulk& bulk_;
  const GraphMemoryUse& graphs_;
  std::atomic<int> shared_{0};
  std::atomic<std::size_t> host_functions_{0};
};

}  // namespace gpurun::client
