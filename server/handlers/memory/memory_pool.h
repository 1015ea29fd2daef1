// Memory pools: the handlers of pool attributes. See protocol/calls/memory_pool.h.
#pragma once

#include "server/worker/execution/call.h"

namespace gpurun::server {

void add_memory_pool_handlers(Handlers& handlers);

}  // namespace gpurun::server
