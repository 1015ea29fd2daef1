// wait_at_all(): waits for GPUs at several servers at once. The first grant wins.
#pragma once

#include "tools/gpurun/lease.h"

namespace gpurun::tools {

// Asks each server of the order with the order's wait, each on a thread of its own. After the first
// grant it gives up the other requests: their links close, and a later grant is returned at once.
// It warns of a server that refuses or dies meanwhile, and waits on for the others. When all fail,
// the failure joins their messages.
//
// Calls `say` and `warn` of the order only on this thread.
Result<HeldLease> wait_at_all(const LeaseOrder& order);

}  // namespace gpurun::tools
