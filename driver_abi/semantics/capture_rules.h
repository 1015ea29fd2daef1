// Capture rules: what calls may do while streams capture. The client library enforces this one
// table on programs, and the emulated device answers by it.
//
// Sources: cuda.h, cuThreadExchangeStreamCaptureMode (modes), cuStreamIsCapturing and
// cuStreamGetCaptureInfo (the legacy stream), CUDA_ERROR_STREAM_CAPTURE_* and
// CUDA_ERROR_CAPTURED_EVENT. Programming Guide, "Prohibited and Unhandled Operations" (below:
// guide). NVIDIA's "CUDA Graph Best Practice for PyTorch", "Constraints" and "Quick Checklist"
// (below: practice). A comment marks each rule that is documented nowhere.
#pragma once

#include <cstdint>

namespace gpurun::driver_abi {

enum class CaptureFamily : std::uint8_t {
  kOpen,     // Unrelated to captures, or the call checks by itself.
  kUnsafe,   // Neither enqueued nor seen by a capture: allocations, frees, loads of code.
  kFree,     // As kUnsafe, but freeing null is allowed.
  kWork,     // Enqueues in a stream, which captures it.
  kWaits,    // Enqueues in a stream and waits for it: synchronous copies.
  kLooks,    // Waits for a stream, queries it, or enqueues an operation that no graph can hold.
  kStatus,   // Queries whether a stream captures.
  kContext,  // Waits for all streams of a context.
  kEvent,    // Waits for an event, or queries it.
};

// The result of a refused call. Code 0: the call is made.
struct CaptureRefusal {
  std::uint16_t code = 0;    // A CUresult.
  bool invalidates = false;  // The captures concerned fail at their end.
};

struct CaptureRule {
  CaptureFamily family;
  // Potentially unsafe: refused with kProhibited where mode_prohibits(), and those captures are
  // invalidated. This check comes before the others, but after `event`, an order that is documented
  // nowhere.
  bool unsafe;
  // The call is unsafe depending on its argument. The function itself checks, not its entry point.
  bool by_argument;
  CaptureRefusal capturing;    // In a stream that captures.
  CaptureRefusal invalidated;  // In a stream with an invalidated capture.
  CaptureRefusal legacy;       // Legacy stream, while a blocking stream of its context captures.
  CaptureRefusal context;      // While any stream of the context captures.
  CaptureRefusal event;        // On an event that was last recorded in a capture.
};

inline constexpr CaptureRefusal kProhibited = {900, true};  // STREAM_CAPTURE_UNSUPPORTED.

// All functions: any thread, no state.
const CaptureRule& capture_rule(CaptureFamily family) noexcept;
// The family of a Row::base ("cuMemAlloc"). Functions that are not listed are kOpen.
CaptureFamily capture_family(const char* base) noexcept;

// Whether a thread in mode `own` may make no unsafe call because of a capture in mode `capture`.
// This thread or another one began the capture. Modes are CUstreamCaptureMode's numbers.
bool mode_prohibits(unsigned own, unsigned capture, bool begun_by_this_thread) noexcept;

}  // namespace gpurun::driver_abi
