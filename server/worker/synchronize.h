// Waiting and asking: streams, contexts, events. A wait is parked when the device is not done, so
// that it delays nobody else; an event that is found complete is told to the client, which then
// asks no more.
#pragma once

#include "server/worker/call.h"

namespace gpurun::server {

void add_synchronize_handlers(Handlers& handlers);

}  // namespace gpurun::server
