// HostMirrorPolls: a thread that exchanges small mirrored memory while work is on the device, so
// that host and device see each other's flags (docs/adr/0042).
//
// It looks soon after work was issued, and then less and less often while nothing changes. It
// sleeps while no work is under way. Work that is shorter than kFirst costs nothing.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "base/status.h"
#include "client/process/thread.h"
#include "client/session/host_mirror_traffic.h"

namespace gpurun::client {

class HostMirrorPolls {
 public:
  static constexpr std::chrono::microseconds kFirst{500};
  static constexpr std::chrono::microseconds kLongest{5'000};
  // After so many looks without change or new work, an interval may last so long.
  static constexpr int kQuietLooks = 400;
  static constexpr std::chrono::microseconds kQuiet{100'000};

  explicit HostMirrorPolls(HostMirrorTraffic& traffic) : traffic_(traffic) {}
  HostMirrorPolls(const HostMirrorPolls&) = delete;
  HostMirrorPolls& operator=(const HostMirrorPolls&) = delete;

  // Once. kResourceExhausted: there is no thread, so nothing is exchanged but by calls.
  Status start();
  void stop() noexcept;

 private:
  static void* serve(void* polls);
  // Returns whether to go on.
  bool pause(std::chrono::microseconds time);

  HostMirrorTraffic& traffic_;
  Thread thread_;
  std::mutex mutex_;
  std::condition_variable stopping_;
};

}  // namespace gpurun::client
