// Copy waits: carries out what client/early_answers decides for a copy to the device.
#pragma once

#include "client/early_answers/copy_answers.h"
#include "client/interpose/call/forward.h"
#include "client/interpose/driver/copy_box.h"

namespace gpurun::client::interpose {

// Returns whether a synchronous copy to the device may return before it is complete, because the
// program could not notice. Waits up to 20 ms until the sources of earlier copies are read.
bool may_return_early(const EntryContext& here, const CallSite& site, const CopySide& destination,
                      Waiting waiting);

// Decides when the source of a copy to the device is read. `stays`: the source does not change
// until the copy is complete. May wait for the stream first. Returns 0, or that wait's failure.
int prepare_reading(const EntryContext& here, const CallSite& site, Waiting waiting, bool stays,
                    ByteView source, CopyReading* reading);

// Returns `reading`, or its pulled form if the worker may read `source` by itself. For a source in
// one piece that prepare_reading() has been called for. `pinned`: it is pinned memory. The caller
// of a synchronous copy waits until the source has been read.
CopyReading pulled_reading(const EntryContext& here, Waiting waiting, CopyReading reading,
                           bool pinned, ByteView source);

// Returns how the bytes of a copy from the device come to `destination`, which is in one piece.
CopyArrival written_arrival(const EntryContext& here, bool pinned, ByteView destination);

}  // namespace gpurun::client::interpose
