// Primary contexts: the client keeps one handle per device for the life of the process; here it
// stands for the driver's primary context as long as that is retained.
#pragma once

#include "server/worker/call.h"

namespace gpurun::server {

void add_primary_context_handlers(Handlers& handlers);

}  // namespace gpurun::server
