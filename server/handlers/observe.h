// Answers what a client asks about its session (protocol/observation.h).
#pragma once

#include "server/worker/call.h"

namespace gpurun::server {

void add_observe_handler(Handlers& handlers);

}  // namespace gpurun::server
