// What is shared with other processes ends (driver/interprocess.cc).
#pragma once

#include "client/interpose/forward.h"
#include "client/interpose/memory_ranges.h"

namespace gpurun::client::interpose {

// The range that remove_range() or take_ranges_of_context() gave: shared memory loses its handle,
// another process's is closed. True: it was one of these, and Session::unshare_memory() is to
// follow once it is freed.
bool end_sharing(const Here& here, const MemoryRange& range);

}  // namespace gpurun::client::interpose
