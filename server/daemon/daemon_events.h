// DaemonEvents: what the threads of connections leave for the daemon's loop.
//
// post(): any thread. The rest: run()'s thread. The mutex is a leaf.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <utility>
#include <variant>

#include "server/daemon/leases/lease_book.h"
#include "server/daemon/links/loop_wake.h"
#include "server/daemon/session_workers.h"

namespace gpurun::server {

struct LeaseEnded {
  protocol::Id lease;
};
using DaemonEvent = std::variant<LeaseBegun, Arrival, ExtraBulkConnection, LeaseEnded>;

class DaemonEvents {
 public:
  // Borrows it.
  explicit DaemonEvents(const LoopWake& wake) : wake_(wake) {}
  DaemonEvents(const DaemonEvents&) = delete;
  DaemonEvents& operator=(const DaemonEvents&) = delete;

  void post(DaemonEvent event) {
    {
      const std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
    }
    wake_.wake();
  }
  // Takes the oldest, and wakes the loop again if there are more.
  std::deque<DaemonEvent> take() {
    std::deque<DaemonEvent> events;
    const std::lock_guard lock(mutex_);
    while (!events_.empty() && events.size() < kAtOnceMax) {
      events.push_back(std::move(events_.front()));
      events_.pop_front();
    }
    if (!events_.empty()) wake_.wake();
    return events;
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    events_.clear();
  }

 private:
  // The start of a worker takes milliseconds, during which other events wait.
  static constexpr std::size_t kAtOnceMax = 16;

  const LoopWake& wake_;
  std::mutex mutex_;
  std::deque<DaemonEvent> events_;  // Under mutex_.
};

}  // namespace gpurun::server
