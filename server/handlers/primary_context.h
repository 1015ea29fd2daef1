// Primary contexts: the client keeps one handle per device for the life of the process. Here it is
// bound to the driver's primary context while that is retained.
#pragma once

#include "server/worker/execution/call.h"

namespace gpurun::server {

void add_primary_context_handlers(Handlers& handlers);

}  // namespace gpurun::server
