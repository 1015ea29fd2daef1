// Implicit waits: a call that frees memory completes the earlier work of a context before it
// returns. Where the program cannot tell, it returns early, and the worker keeps the order
// (docs/adr/0038).
#pragma once

#include "client/interpose/forward.h"

namespace gpurun::client::interpose {

// Whether a call that frees memory may return before the device is done. True: the program may
// write to every source of its copies now, as it may after the call has waited.
bool may_free_early(const Here& here);

// The worker keeps later calls behind a free, and can be waited for while a stream captures.
bool worker_keeps_order(const Here& here);

// For a call that frees nothing of the device's: waits for the work of `context`, or orders all
// later calls behind it. Sends nothing where that is known to be complete. 0, or an earlier
// failure.
int wait_implicitly(const Here& here, Handle context);

}  // namespace gpurun::client::interpose
