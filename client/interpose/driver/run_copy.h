// Run copy: the way of every cuMemcpy* call to the command log. A copy becomes a box record,
// records of its lines, or work of the graph that the stream captures.
//
//   copy_box.h          The box: its lines, slices and pitches.
//   copy_memory.h       Where a side lies, and whether known memory holds it.
//   copy_description.h  From the program's structures to a box.
//   copy_waits.h        When a host source is read, and when the call may return.
//   box_record.h        A box as one record, or a few.
//   line_records.h      Each line as a record of its own.
#pragma once

#include "client/interpose/call/forward.h"
#include "client/interpose/driver/copy_box.h"
#include "client/interpose/driver/copy_waits.h"

namespace gpurun::client::interpose {

// Runs the copy in the order of `stream`. `code` names the call for errors and statistics. Returns
// a CUresult.
int run_copy(const EntryContext& here, std::uint16_t code, Handle stream, const Copy& copy,
             Waiting waiting);

}  // namespace gpurun::client::interpose
