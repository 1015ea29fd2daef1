// Primary contexts: one for each device. The handle stays the same for the life of the process, and
// exists before the program retains the context.
#pragma once

#include "client/interpose/call/forward.h"

namespace gpurun::client::interpose {

// The primary context of a device, created at the first question. Neither retains nor activates it.
int primary_context(const EntryContext& here, int ordinal, Context** context);

// A new context object of a device, with its handle. nullptr without memory or handles.
Context* new_context(const EntryContext& here, int ordinal, bool primary);

// Ends everything that the program kept in `context`. begin_end_of_context() forgets its captures
// and drops the values of libraries with their destructors. Call it while the worker's context
// still answers. end_context() retires the handles. From then on the context answers 709
// (CONTEXT_IS_DESTROYED). A context that is not primary ends for good.
void begin_end_of_context(const EntryContext& here, Context& context);
void end_context(const EntryContext& here, Context& context);

}  // namespace gpurun::client::interpose
