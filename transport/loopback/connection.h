// Loopback connection: two ends in one process, for tests. It has two bounded byte queues and makes
// no system calls, so that order and blocking can be studied without the kernel's buffers.
#pragma once

#include <memory>
#include <utility>

#include "transport/transport.h"

namespace gpurun::transport::loopback {

using Pair = std::pair<std::unique_ptr<Connection>, std::unique_ptr<Connection>>;

// One direction holds this many bytes before its sender waits.
inline constexpr std::size_t kQueueBytes = std::size_t{256} << 10;

// Two connected ends. Each may be used and destroyed on its own.
Pair connect_pair();

}  // namespace gpurun::transport::loopback
