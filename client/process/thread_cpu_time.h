// thread_cpu_time(): the core time of a thread. ConnectionCount needs the cost of sending and
// receiving.
#pragma once

#include <time.h>

#include <chrono>

namespace gpurun::client {

// One send or receive in so many is measured, because the measurement is a system call.
inline constexpr unsigned kTurnsPerLook = 8;

inline std::chrono::steady_clock::duration thread_cpu_time() noexcept {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

}  // namespace gpurun::client
