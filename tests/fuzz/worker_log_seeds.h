// First inputs for fuzz_worker_log that reach what stands behind a worker's tables: each is a short
// life of a client, so that handles live and transfers have bytes when a mutation meets them.
#pragma once

#include <functional>
#include <string>

#include "base/bytes.h"

namespace gpurun::fuzz {

// Hands each over with its name.
void worker_log_lives(const std::function<void(const std::string&, const Bytes&)>& write);

}  // namespace gpurun::fuzz
