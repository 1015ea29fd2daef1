// Observe handler: answers the client's requests for statistics of its session
// (protocol/statistics/worker_statistics.h).
#pragma once

#include "server/worker/execution/call.h"

namespace gpurun::server {

void add_observe_handler(Handlers& handlers);

}  // namespace gpurun::server
