// HostMemoryUse: what may read or write the program's memory beside its own threads, now or later.
// Copies from the device, host functions and graphs may. Another process may look at shared memory.
// All work on the device may read and write memory of the host arena (docs/adr/0040). Any thread,
// without a lock of its own.
#pragma once

#include <atomic>
#include <cstddef>

#include "base/bytes.h"
#include "client/bulk/bulk.h"
#include "client/early_answers/handle_set.h"
#include "client/early_answers/stream_progress.h"
#include "client/log/handles.h"
#include "protocol/log/record.h"

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
  HostMemoryUse(const Bulk& bulk, const GraphMemoryUse& graphs,
                const StreamProgress& progress) noexcept
      : bulk_(bulk), graphs_(graphs), progress_(progress) {}
  HostMemoryUse(const HostMemoryUse&) = delete;
  HostMemoryUse& operator=(const HostMemoryUse&) = delete;

  // See Session.
  bool write_outstanding() const noexcept { return bulk_.outstanding() || functions_may_write(); }
  bool may_still_write(ByteView memory) const noexcept {
    return bulk_.outstanding(memory) || functions_may_write();
  }
  // As may_still_write(), for writes that the stream's order alone does not bring to `memory`: the
  // bytes travel behind the work that wrote them. A host function has written when it ends.
  bool may_write_late(ByteView memory) const noexcept {
    return bulk_.outstanding(memory) || graphs_.may_write();
  }
  // Whether threads of this process may still write to `memory` what the device has written. Writes
  // of the worker's device to the same place could come before them.
  bool may_receive(ByteView memory) const noexcept {
    return graphs_.may_write() || bulk_.receives(memory);
  }
  bool graphs_touch_memory() const noexcept { return graphs_.may_touch(); }

  std::size_t add_host_function() noexcept { return host_functions_.fetch_add(1); }
  void end_host_function() noexcept { host_functions_.fetch_sub(1); }
  bool host_functions_wait() const noexcept {
    return host_functions_.load(std::memory_order_acquire) != 0;
  }

  void share() noexcept { shared_.fetch_add(1); }
  void unshare() noexcept { shared_.fetch_sub(1); }
  bool is_shared() const noexcept { return shared_.load() != 0; }

  // The device reaches one more, or one less, range of the program's memory.
  void begin_reach() noexcept { reached_.fetch_add(1, std::memory_order_release); }
  void end_reach() noexcept { reached_.fetch_sub(1, std::memory_order_release); }
  // `stream` of `context`, as in CallSite, is issued work that may read or write what the device
  // reaches, such as a kernel. Call it before the record is reserved.
  void note_work(Handle context, Handle stream) noexcept {
    bool kept = working_.add(context);
    if (stream > protocol::kStreamPerThread) {
      kept = streams_.add(stream) && kept;
    } else if (stream == protocol::kStreamPerThread) {
      kept = wholes_.add(context) && kept;
    } else {
      kept = legacies_.add(context) && kept;
    }
    if (!kept) many_work_.store(true);
  }
  // The same for work of several contexts at once.
  void note_work_of_several() noexcept { many_work_.store(true); }
  // The created stream ends. The work that it has goes on.
  void forget_stream(Handle context, Handle stream) noexcept {
    const auto is_stream = [stream](Handle each) { return each == stream; };
    if (!streams_.any(is_stream)) return;
    const bool kept = progress_.complete_in_stream(stream) || wholes_.add(context);
    if (!kept) many_work_.store(true);
    streams_.remove(stream);
  }
  // The context has ended, with all of its streams and work.
  void forget_work(Handle context) noexcept {
    streams_.remove_if([&](Handle stream) { return progress_.context_of(stream) == context; });
    wholes_.remove(context);
    legacies_.remove(context);
    working_.remove(context);
  }
  using Contexts = HandleSet<4>::All;
  Contexts working_contexts() const noexcept { return working_.all(); }
  // Returns whether the device reaches memory of the program, and such work may be under way.
  bool device_may_use() const noexcept { return device_may_use_beside(0); }
  // As device_may_use(), for work outside the created stream `beside`. 0: for all work.
  bool device_may_use_beside(Handle beside) const noexcept {
    if (reached_.load(std::memory_order_acquire) == 0) return false;
    const auto works = [&](Handle each) {
      return each != beside && !progress_.complete_in_stream(each);
    };
    return many_work_.load(std::memory_order_acquire) || streams_.any(works) ||
           legacies_.any([&](Handle each) { return !progress_.complete_in_legacy_stream(each); }) ||
           wholes_.any([&](Handle each) { return !progress_.complete(each); });
  }

 private:
  bool functions_may_write() const noexcept { return host_functions_wait() || graphs_.may_write(); }

  const Bulk& bulk_;
  const GraphMemoryUse& graphs_;
  const StreamProgress& progress_;
  std::atomic<int> shared_{0};
  std::atomic<std::size_t> reached_{0};
  // Such work was issued to these: contexts, their created streams, and contexts by their legacy
  // stream. `wholes_`: to any stream of the context. `many_work_`: there were more.
  HandleSet<4> working_;
  HandleSet<32> streams_;
  HandleSet<4> legacies_, wholes_;
  std::atomic<bool> many_work_{false};
  std::atomic<std::size_t> host_functions_{0};
};

}  // namespace gpurun::client
