// What a thread has had of a core: ConnectionCount is told how much sending and receiving take.
#pragma once

#include <time.h>

#include <chrono>

namespace gpurun::client {

// Of so many sends or receives one tells what all take of a core: to ask is a system call.
inline constexpr unsigned kTurnsPerLook = 8;

inline std::chrono::steady_clock::duration core_time_of_thread() noexcept {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

}  // namespace gpurun::client
