// Waits for GPUs at several servers at once: the first grant wins.
#pragma once

#include "tools/gpurun/lease.h"

namespace gpurun::tools {

// Asks each server of the order with the order's wait, each on a thread of its own. When one has
// granted, the requests at the others are given up: their links close, and a grant that still
// comes is returned at once. A server that refuses or dies meanwhile is warned of, and the others
// are waited for on. The failure is that of all, joined.
//
// `say` and `warn` of the order are called on this thread alone.
Result<HeldLease> wait_at_all(const LeaseOrder& order);

}  // namespace gpurun::tools
