// Box record: a copy of a box as one record, or a few. The worker copies boxes
// (protocol::kFlagBox). If the program's memory has gaps, a source that can be read at once is
// gathered into few records. Arriving bytes are scattered as they come (Bulk). A source that must
// wait for its turn goes line by line.
#pragma once

#include "client/interpose/call/forward.h"
#include "client/interpose/driver/copy_box.h"
#include "client/interpose/driver/copy_waits.h"

namespace gpurun::client::interpose {

// As run_copy(), but as one record where possible. The copy must pass stays_inside() and have a
// side on the device. If the stream captures, both sides must be on the device.
int run_box_copy(const EntryContext& here, std::uint16_t code, Handle stream, const Copy& copy,
                 Waiting waiting);

}  // namespace gpurun::client::interpose
