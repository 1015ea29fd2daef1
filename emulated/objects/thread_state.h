// ThreadState: the state that CUDA keeps per host thread: the stack of current contexts, the
// thread's default streams, its capture mode.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "emulated/objects/context.h"

namespace gpurun::emulated {

// Only for the thread that called thread_state().
struct ThreadState {
  std::vector<ContextPtr> contexts;  // The last one is current.
  // By context id. Kept until the thread ends or the context is reset.
  std::map<std::uint64_t, StreamPtr> default_streams;
  CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  bool in_callback = false;                // In a callback, which must not call CUDA.
  bool per_thread_default_stream = false;  // A _ptds or _ptsz call is running.

  // nullptr: no current context.
  const ContextPtr& current() const;
  // The stream that handle 2 means on this thread.
  StreamPtr default_stream(const ContextPtr& context);
};

// The calling thread's state. It outlives thread-local destructors and exit handlers of the main
// thread, because libraries call the driver from those.
ThreadState& thread_state();

// Makes handle 0 mean the per-thread stream during a _ptds or _ptsz call.
class PerThreadDefaultStream {
 public:
  PerThreadDefaultStream() : state_(thread_state()), before_(state_.per_thread_default_stream) {
    state_.per_thread_default_stream = true;
  }
  ~PerThreadDefaultStream() { state_.per_thread_default_stream = before_; }
  PerThreadDefaultStream(const PerThreadDefaultStream&) = delete;
  PerThreadDefaultStream& operator=(const PerThreadDefaultStream&) = delete;

 private:
  ThreadState& state_;
  const bool before_;
};

}  // namespace gpurun::emulated
