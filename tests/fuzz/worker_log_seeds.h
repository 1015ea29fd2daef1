// Worker log seeds: first inputs for fuzz_worker_log that reach the code behind a worker's tables.
// Each is a short life of a client, so that a mutation meets live handles and transfers with bytes.
#pragma once

#include <functional>
#include <string>

#include "base/bytes.h"

namespace gpurun::fuzz {

// Calls `write` for each one with its name.
void worker_log_lives(const std::function<void(const std::string&, const Bytes&)>& write);

}  // namespace gpurun::fuzz
