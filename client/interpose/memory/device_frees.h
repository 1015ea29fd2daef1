// Device frees: the reports of freed memory, and the return of credits (docs/adr/0005). Used by
// device_windows.cc.
#pragma once

#include <cstdint>

#include "client/interpose/call/forward.h"
#include "client/interpose/memory/window_state.h"
#include "protocol/calls/device_memory.h"

namespace gpurun::client::interpose {

// Posts the record, or sends it and waits with `wait`. `flags` is as CallSite::flags. Returns a
// CUresult.
int report_return(const EntryContext& here, Handle context, const protocol::MemoryReturn& payload,
                  bool wait, std::uint16_t flags = 0);
// Reports the frees that were made during a capture, once no capture is left.
void report_untold(const EntryContext& here, Window& window);
// Other processes that lack memory may ask for this one's idle credits from now on. Call with the
// first credits. Before that this process holds no idle credits, even if another process already
// waits for its answer.
void begin_sharing();

}  // namespace gpurun::client::interpose
