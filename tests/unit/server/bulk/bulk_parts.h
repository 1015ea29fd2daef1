// Bulk parts: what the tests of the worker's bulk share.
#pragma once

#include <chrono>
#include <cstddef>
#include <thread>

#include "base/deadline.h"
#include "protocol/limits.h"

namespace gpurun::server {

inline constexpr std::size_t kChunk = limits::kBulkChunkBytes;

// Waits, with a bound, for what another thread does.
template <typename Condition>
bool eventually(Condition condition) {
  const Deadline deadline = Deadline::in(std::chrono::seconds(20));
  while (!condition()) {
    if (deadline.passed()) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace gpurun::server
