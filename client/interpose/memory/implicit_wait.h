// Implicit waits: a call that frees memory completes the earlier work of a context before it
// returns. Where the program cannot notice, the call returns early and the worker keeps the order
// (docs/adr/0038). client/early_answers/free_answers.h decides.
#pragma once

#include "client/interpose/call/forward.h"
#include "client/interpose/memory/memory_ranges.h"

namespace gpurun::client::interpose {

// Whether a call that frees memory may return before the device is done. Waits until the earlier
// copies have read their sources. When it returns true, the program may write to these sources, as
// it may after a full wait.
bool may_free_early(const EntryContext& here);

// Whether the worker orders later calls after a free, and allows a wait while a stream captures.
bool worker_keeps_order(const EntryContext& here);

// For a call that frees no device memory. Waits for the work of `context`, or orders all later
// calls after it. Sends nothing when that work is known to be complete. Returns 0, or an earlier
// failure.
int wait_implicitly(const EntryContext& here, Handle context);

// Waits for the work that may use host or managed memory which ends: that of its context and of the
// current one. If the device reaches it, also that of the other contexts, because it is registered
// for all of them. Returns 0, or the first failure.
int wait_for_users(const EntryContext& here, const MemoryRange& range);

}  // namespace gpurun::client::interpose
