// LeaseWaitBudget: how long one request for a lease waits, and for what.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>

#include "base/deadline.h"
#include "protocol/control/control.h"
#include "server/daemon/leases/lease_queue.h"

namespace gpurun::server {

// See DaemonOptions.
struct LeaseWaitLimits {
  unsigned devices = 0;
  std::chrono::milliseconds follow_deadline{0};
  std::chrono::milliseconds overtaken_deadline{0};
  std::chrono::milliseconds place_interval{0};
  std::chrono::milliseconds send_deadline{0};  // For one message to the client.
};

struct LeaseWaitBudget {
  // The longest time that a request may wait for GPUs.
  static constexpr std::chrono::milliseconds kWaitMax = std::chrono::hours(7 * 24);

  LeaseWaitBudget(const LeaseWaitLimits& limits, const protocol::LeaseRequest& request)
      : LeaseWaitBudget(limits, std::chrono::milliseconds(std::min<std::uint64_t>(
                                    request.wait_milliseconds, kWaitMax.count()))) {}

  Deadline queued;               // As requested.
  Deadline follow;               // For GPUs that come back soon.
  Deadline overtaken;            // For leases that its user may have ended already.
  std::unique_ptr<Watch> watch;  // Once it waits without a place in the queue.

 private:
  // A request with a wait of its own waits no longer than that.
  LeaseWaitBudget(const LeaseWaitLimits& limits, std::chrono::milliseconds wait)
      : queued(Deadline::in(wait)),
        follow(Deadline::in(within(wait, limits.follow_deadline))),
        overtaken(Deadline::in(within(wait, limits.overtaken_deadline))) {}
  static std::chrono::milliseconds within(std::chrono::milliseconds wait,
                                          std::chrono::milliseconds bound) {
    return wait.count() == 0 ? bound : std::min(wait, bound);
  }
};

}  // namespace gpurun::server
