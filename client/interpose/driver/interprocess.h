// Interprocess memory: the end of sharing with other processes (driver/interprocess.cc).
#pragma once

#include "client/interpose/call/forward.h"
#include "client/interpose/memory/memory_ranges.h"

namespace gpurun::client::interpose {

// Ends the sharing of a range that remove_range() or take_ranges_of_context() returned. Shared
// memory loses its handle, and another process's memory is closed. True: it was shared, and the
// caller must call Session::unshare_memory() once the range is freed.
bool end_sharing(const EntryContext& here, const MemoryRange& range);

}  // namespace gpurun::client::interpose
