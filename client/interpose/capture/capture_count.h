// Capture count: how many captures this process has. Each call asks, so the question costs one
// load.
#pragma once

#include <atomic>

namespace gpurun::client::interpose {

// The number of captures in this process. Only capture.cc writes it.
inline constinit std::atomic<int> g_capture_count{0};

// Whether any stream of the process captures. A thread that knows of another thread's capture has
// synchronised with that thread, so it sees the count.
inline bool capturing_somewhere() noexcept {
  return g_capture_count.load(std::memory_order_relaxed) != 0;
}

}  // namespace gpurun::client::interpose
