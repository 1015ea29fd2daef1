// Stream argument: from the stream that the program names to the stream of a call's site.
#pragma once

#include "client/interpose/call/forward.h"

namespace gpurun::client::interpose {

// Resolves a stream argument. Stream 0 is the thread's own in _ptds and _ptsz copies. Returns 0 and
// the value for CallSite::stream. Otherwise returns INVALID_HANDLE, the failure of the stream's
// creation, or the refusal of a capture (capture.h). Posts kept frees that the implicit order of
// streams needs first (implicit_order.h).
int resolve_stream(const EntryContext& here, CUstream given, Handle* stream);

}  // namespace gpurun::client::interpose
