// Primary contexts: one per device, whose handle stays the same for the life of the process and is
// known before anybody retains it.
#pragma once

#include "client/interpose/forward.h"

namespace gpurun::client::interpose {

// The context of a device, made at the first question; neither retained nor activated by this.
int primary_context(const Here& here, int ordinal, Context** context);

// A new context object of a device, with its handle; nullptr without memory or handles.
Context* new_context(const Here& here, int ordinal, bool primary);

// Everything that the program kept in `context` is gone: values of libraries are dropped with their
// destructors, handles are retired, the context answers 709 from now on. Call it while the worker's
// context still answers; a context that is not primary ends for good.
void begin_end_of_context(const Here& here, Context& context);
void end_context(const Here& here, Context& context);

}  // namespace gpurun::client::interpose
