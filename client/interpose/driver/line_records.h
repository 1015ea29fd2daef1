// Line records: a copy that travels line by line, each line as a record of its own.
//
// Such copies are single lines, long lines to the device from memory with gaps, copies between two
// devices, and pitches that no device supports. Only the last record is waited for.
#pragma once

#include "client/interpose/call/forward.h"
#include "client/interpose/driver/copy_box.h"
#include "client/interpose/driver/copy_waits.h"

namespace gpurun::client::interpose {

// Runs the copy in the order of `stream`. The copy must pass stays_inside() and have no array.
// `code` names the call for errors and statistics. Returns a CUresult.
int run_line_copy(const EntryContext& here, std::uint16_t code, Handle stream, const Copy& copy,
                  Waiting waiting);

}  // namespace gpurun::client::interpose
