// Synchronize handlers: waits and queries for streams, contexts and events. A wait is parked when
// the device is not done, so that it delays no other call.
//
// When an event is complete the client is notified and does not query it again.
#pragma once

#include "server/worker/execution/call.h"

namespace gpurun::server {

void add_synchronize_handlers(Handlers& handlers);

}  // namespace gpurun::server
