// HostMemoryUse: what may read or write the program's memory beside its own threads, now or later.
// Copies from the device, host functions and graphs may. Another process may look at shared memory.
// All work on the device may read and write memory of the host arena (docs/adr/0040). Any thread,
// without a lock of its own.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include "base/bytes.h"
#include "client/bulk/bulk.h"
#include "client/log/handles.h"

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

  // The device reaches one more, or one less, range of the program's memory.
  void begin_reach() noexcept { reached_.fetch_add(1, std::memory_order_release); }
  void end_reach() noexcept { reached_.fetch_sub(1, std::memory_order_release); }
  // `context` is issued work that may read or write what the device reaches, such as a kernel.
  void note_work(Handle context) noexcept {
    for (std::atomic<Handle>& each : working_) {
      Handle known = each.load(std::memory_order_relaxed);
      if (known == context) return;
      if (known == 0 && (each.compare_exchange_strong(known, context) || known == context)) return;
    }
    many_work_.store(true);
  }
  // The same for work of several contexts at once.
  void note_work_of_several() noexcept { many_work_.store(true); }
  // The context has ended, with all of its work.
  void forget_work(Handle context) noexcept {
    for (std::atomic<Handle>& each : working_) {
      Handle known = context;
      if (each.compare_exchange_strong(known, 0)) return;
    }
  }
  using Contexts = std::array<Handle, 4>;
  Contexts working_contexts() const noexcept {
    Contexts contexts{};
    for (std::size_t i = 0; i < contexts.size(); ++i) contexts[i] = working_[i].load();
    return contexts;
  }
  // Returns whether the device reaches memory of the program, and such work may be under way.
  // `is_complete` tells whether all work of a context is known to be complete.
  template <typename IsComplete>
  bool device_may_use(IsComplete is_complete) const {
    if (reached_.load(std::memory_order_acquire) == 0) return false;
    for (const std::atomic<Handle>& each : working_) {
      const Handle context = each.load(std::memory_order_acquire);
      if (context != 0 && !is_complete(context)) return true;
    }
    return many_work_.load(std::memory_order_acquire);
  }

 private:
  bool functions_may_write() const noexcept {
    return host_functions_.load(std::memory_order_acquire) != 0 || graphs_.may_write();
  }

  const Bulk& bulk_;
  const GraphMemoryUse& graphs_;
  std::atomic<int> shared_{0};
  std::atomic<std::size_t> reached_{0};
  // The contexts that were issued such work. `many_work_`: there were more.
  std::array<std::atomic<Handle>, std::tuple_size_v<Contexts>> working_{};
  std::atomic<bool> many_work_{false};
  std::atomic<std::size_t> host_functions_{0};
};

}  // namespace gpurun::client
