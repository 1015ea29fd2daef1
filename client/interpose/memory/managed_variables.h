// ManagedVariables: `__managed__` variables that host code of this process uses
// (protocol/calls/managed_variable.h, docs/adr/0045). The worker's driver has chosen their
// addresses. This process maps private memory at the pages around them, and the session keeps it
// and the driver's memory alike.
//
// The server is untrusted. Its addresses are used only if they are free here, or blocked by this
// process itself, and within the bounds of protocol/limits.h.
//
// The state is immortal. Any thread.
#pragma once

#include <string>

#include "client/interpose/call/forward.h"
#include "protocol/calls/managed_variable.h"

namespace gpurun::client::interpose {

// Makes a variable usable by host code, until the end of its library. The worker has it in its
// mirror. On return the memory holds what the worker's has. Returns an empty text, or why this is
// impossible, for the program's user. `*failure`: 0, or the result of a session that has ended.
std::string open_managed_variable(const EntryContext& here, Handle library,
                                  const protocol::ManagedVariable& variable, int* failure);

// Ends the variables of a library. Call it before the worker ends the library. What work has
// written to other memory that both sides see arrives first.
void close_managed_variables(const EntryContext& here, Handle library);

}  // namespace gpurun::client::interpose
