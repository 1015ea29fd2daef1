// Captures: which streams capture, in which mode, and what a thread may therefore not call. The
// worker always captures relaxed (architecture, section 4); the rules are kept here.
//
// Rules: CUDA driver API manual, cuStreamBeginCapture_v2 and cuThreadExchangeStreamCaptureMode.
// While nothing captures, everything here is one load. Any thread.
#pragma once

#include "client/interpose/forward.h"

namespace gpurun::client::interpose {

// Whether any stream of the process captures.
bool capturing_somewhere() noexcept;

// For calls that CUDA calls potentially unsafe (allocations, frees, event queries, ...): 0, or
// STREAM_CAPTURE_UNSUPPORTED, and the captures that forbid the call are invalidated.
int refuse_while_capturing(const Here& here) noexcept;

// Whether the stream captures, by itself or because it waited for a capturing one. 0, or
// STREAM_CAPTURE_INVALIDATED. A round trip while anything captures.
int is_captured(const Here& here, Handle stream, bool* captures);

// For calls that CUDA does not capture (cuStreamAddCallback): 0, or STREAM_CAPTURE_UNSUPPORTED when
// the stream captures.
int refuse_capture_of(const Here& here, Handle stream);

}  // namespace gpurun::client::interpose
