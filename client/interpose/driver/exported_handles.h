// ExportedHandles: the descriptors with which this process's program shares memory
// (docs/adr/0041).
//
// For each export, the program holds one end of a TokenDescriptor and this object the other. When
// the program and all processes that got a copy have closed theirs, the worker is told to end the
// export. A thread of ours waits for that. The state is immortal. A forked child begins without
// exports: the parent watches on. Any thread.
#pragma once

#include "client/interpose/call/forward.h"
#include "protocol/calls/shareable_handle.h"

namespace gpurun::client::interpose {

// Exports of one process at a time.
inline constexpr std::size_t kExportedHandlesMax = 4096;

// Whether worker and client both know exports.
bool shares_by_descriptors(const EntryContext& here);

// Makes the program's descriptor for `token`, of the row `code`, and watches it. Returns 0 and the
// descriptor, or OUT_OF_MEMORY. The worker's export is then still there, and the caller ends it.
int make_exported_handle(const EntryContext& here, std::uint16_t code,
                         const protocol::SharingHandle& token, int* descriptor);
// Posts the end of an export.
void end_exported_handle(const EntryContext& here, std::uint16_t code,
                         const protocol::SharingHandle& token);
// Ends the exports with closed descriptors, without waiting for the thread. Returns whether
// this process has exported anything.
bool end_closed_handles(const EntryContext& here);
// The site of a call that the worker makes once these exports have ended.
inline CallSite after_closed_handles() { return CallSite(); }

// The token behind a descriptor of the program. False: it is no descriptor of an export. Each row
// has its own descriptors.
bool read_exported_handle(int descriptor, std::uint16_t code, protocol::SharingHandle* token);

}  // namespace gpurun::client::interpose
