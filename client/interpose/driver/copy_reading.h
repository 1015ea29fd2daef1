// Copy reading: when the source of a copy to the device is read, and whether the call may return
// before the copy is complete (docs/adr/0013).
#pragma once

#include "client/interpose/call/forward.h"
#include "client/interpose/driver/copy_box.h"

namespace gpurun::client::interpose {

enum class Waiting : std::uint8_t {
  kSynchronous,   // cuMemcpy: complete on return, or not distinguishable from complete.
  kAsynchronous,  // cuMemcpyAsync: still waits for pageable memory.
  kReadNow,       // As kAsynchronous, but reads a host source at once, in no stream's order.
};

// Whether a synchronous copy to the device may return before it is complete, because the program
// could not notice. Waits up to 20 ms until the sources of earlier copies are read.
bool may_return_early(const EntryContext& here, const CallSite& site, const CopySide& destination,
                      Waiting waiting);

// Decides when the source of a copy to the device is read. `stays`: the source does not change
// until the copy is complete. May wait for the stream first. Returns 0, or that wait's failure.
int choose_reading(const EntryContext& here, const CallSite& site, Waiting waiting, bool stays,
                   ByteView source, Session::Reading* reading);

}  // namespace gpurun::client::interpose
