// Refusals: why the worker's RDMA device does not move large copies by itself.
#pragma once

#include "protocol/statistics/worker_refusals.h"

namespace gpurun::server {

class Executor;

// Of the session so far. For handlers.
protocol::WorkerRefusals refusals_of(Executor& executor);

}  // namespace gpurun::server
