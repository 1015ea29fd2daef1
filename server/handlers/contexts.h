// Contexts: the handlers of primary contexts and of the end of a context. The client keeps one
// handle of a primary context per device for the life of the process. Here it is bound to the
// driver's primary context while that is retained.
#pragma once

#include "server/worker/execution/call.h"

namespace gpurun::server {

void add_context_handlers(Handlers& handlers);

}  // namespace gpurun::server
