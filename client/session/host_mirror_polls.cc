// HostMirrorPolls: the intervals.
#include "client/session/host_mirror_polls.h"

#include <algorithm>

namespace gpurun::client {

Status HostMirrorPolls::start() { return thread_.start("gpurun-mirror", &serve, this); }

void HostMirrorPolls::stop() noexcept {
  if (!thread_.started()) return;
  {
    const std::lock_guard lock(mutex_);
    traffic_.end_polls();
  }
  stopping_.notify_all();
  thread_.join();
}

bool HostMirrorPolls::pause(std::chrono::microseconds time) {
  std::unique_lock lock(mutex_);
  return !stopping_.wait_for(lock, time, [this] { return !traffic_.polls(); });
}

void* HostMirrorPolls::serve(void* of) {
  auto& polls = *static_cast<HostMirrorPolls*>(of);
  Lane* const lane = Lane::current();
  if (lane == nullptr) return nullptr;
  while (polls.traffic_.polls()) {
    polls.traffic_.await_work();
    std::chrono::microseconds time = kFirst;
    int quiet = 0;
    std::uint64_t issued = polls.traffic_.issued();
    while (polls.pause(time) && polls.traffic_.is_due()) {
      const bool changed = polls.traffic_.poll(*lane);
      const std::uint64_t now = polls.traffic_.issued();
      const bool more = now != issued;
      issued = now;
      quiet = changed || more ? 0 : quiet + 1;
      const auto longest = quiet < kQuietLooks ? kLongest : kQuiet;
      time = changed || more ? kFirst : std::min(longest, time + time / 2);
    }
  }
  return nullptr;
}

}  // namespace gpurun::client
