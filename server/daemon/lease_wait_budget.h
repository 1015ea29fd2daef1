// Daemon::LeaseWaitBudget: how long one request waits, and for what.
#pragma once

#include <algorithm>
#include <memory>

#include "base/deadline.h"
#include "server/daemon/daemon.h"

namespace gpurun::server {

struct Daemon::LeaseWaitBudget {
  // The longest time that a request may wait for GPUs.
  static constexpr std::chrono::milliseconds kWaitMax = std::chrono::hours(7 * 24);

  LeaseWaitBudget(const DaemonOptions& options, const protocol::LeaseRequest& request)
      : LeaseWaitBudget(options, std::chrono::milliseconds(std::min<std::uint64_t>(
                                     request.wait_milliseconds, kWaitMax.count()))) {}

  Deadline queued;               // As requested.
  Deadline follow;               // For GPUs that come back soon.
  Deadline overtaken;            // For leases that its user may have ended already.
  std::unique_ptr<Watch> watch;  // Once it waits without a place in the queue.

 private:
  // A request with a wait of its own waits no longer than that.
  LeaseWaitBudget(const DaemonOptions& options, std::chrono::milliseconds wait)
      : queued(Deadline::in(wait)),
        follow(Deadline::in(within(wait, options.follow_deadline))),
        overtaken(Deadline::in(within(wait, options.overtaken_deadline))) {}
  static std::chrono::milliseconds within(std::chrono::milliseconds wait,
                                          std::chrono::milliseconds bound) {
    return wait.count() == 0 ? bound : std::min(wait, bound);
  }
};

}  // namespace gpurun::server
