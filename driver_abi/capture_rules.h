// What calls may do while streams capture: one table for the client library, which enforces it on
// programs, and for the emulated device.
//
// Sources: cuda.h, cuThreadExchangeStreamCaptureMode (modes), cuStreamIsCapturing and
// cuStreamGetCaptureInfo (the legacy stream), CUDA_ERROR_STREAM_CAPTURE_* and
// CUDA_ERROR_CAPTURED_EVENT; Programming Guide, "Prohibited and Unhandled Operations" (below:
// guide); NVIDIA's "CUDA Graph Best Practice for PyTorch", "Constraints" and "Quick Checklist"
// (below: practice). What is nowhere written is said where it is decided.
#pragma once

#include <cstdint>

namespace gpurun::driver_abi {

enum class CaptureFamily : std::uint8_t {
  kOpen,     // Nothing to do with captures, or the call's own business.
  kUnsafe,   // Neither enqueued nor seen by a capture: allocations, frees, loads of code.
  kFree,     // Likewise, but freeing nothing is no operation.
  kWork,     // Enqueues in a stream, which captures it.
  kWaits,    // Enqueues in a stream and waits for it: synchronous copies.
  kLooks,    // Waits for a stream, asks how far it is, or enqueues what no graph can hold.
  kStatus,   // Asks whether a stream captures.
  kContext,  // Waits for all streams of a context.
  kEvent,    // Waits for an event, or asks whether it has come.
};

// What a call gets instead of being done; code 0: it is done.
struct CaptureRefusal {
  std::uint16_t code = 0;    // A CUresult.
  bool invalidates = false;  // The captures in question fail at their end.
};

struct CaptureRule {
  CaptureFamily family;
  // Potentially unsafe: refused with kProhibited where mode_prohibits(), and those captures are
  // invalidated. Nowhere written: it is looked at before the rest, but after `event`.
  bool unsafe;
  // Whether it is unsafe depends on its argument: the function itself asks, not its entry point.
  bool by_argument;
  CaptureRefusal capturing;    // In a stream that captures.
  CaptureRefusal invalidated;  // In a stream whose capture has been invalidated.
  CaptureRefusal legacy;       // In the legacy stream; a blocking stream of its context captures.
  CaptureRefusal context;      // While any stream of the context captures.
  CaptureRefusal event;        // On an event that was last recorded in a capture.
};

inline constexpr CaptureRefusal kProhibited = {900, true};  // STREAM_CAPTURE_UNSUPPORTED.

// All functions: any thread, no state.
const CaptureRule& capture_rule(CaptureFamily family) noexcept;
// By Row::base ("cuMemAlloc"). What is not listed is kOpen.
CaptureFamily capture_family(const char* base) noexcept;

// Modes are CUstreamCaptureMode's numbers. Whether a thread in mode `own` may make no unsafe call
// because of a capture that was begun in mode `capture`, by this thread or by another.
bool mode_prohibits(unsigned own, unsigned capture, bool begun_by_this_thread) noexcept;

}  // namespace gpurun::driver_abi
