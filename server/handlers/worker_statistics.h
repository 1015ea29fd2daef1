// Worker statistics: the handler that answers a client's queries about its session
// (protocol/statistics/worker_statistics.h).
#pragma once

#include "server/worker/execution/call.h"

namespace gpurun::server {

void add_statistics_handler(Handlers& handlers);

}  // namespace gpurun::server
