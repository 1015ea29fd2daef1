// Lane: the identity of one client thread inside a session. It holds what CUDA keeps for each
// thread: current contexts, capture mode, default stream and undelivered errors. The thread's reply
// also arrives here.
//
// A lane is made at its thread's first call and returned at the thread's end. Ids are reused, so
// ten thousand short threads cost only as much as the most that lived at once. The worker knows
// lanes by id only: stream 2 of a lane is one stream of the worker per (lane id, context).
//
// Only its own thread uses a lane, except where a comment names the thread that reads the log.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "client/log/handles.h"
#include "client/log/stream_polls.h"
#include "protocol/limits.h"

namespace gpurun::client {

// Values of CUstreamCaptureMode (cuda.h).
enum class CaptureMode : int { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };

class Lane {
 public:
  // The calling thread's lane, made at its first call. nullptr when limits::kLanesMax threads have
  // one already (the caller returns CUDA_ERROR_OUT_OF_MEMORY).
  static Lane* current() noexcept;
  // Lanes that live now, and the most that ever did. For tests and statistics.
  static std::size_t live_count() noexcept;
  static std::size_t peak_count() noexcept;

  std::uint32_t id() const noexcept { return id_; }

  // The context stack (cuCtxPushCurrent, cuCtxSetCurrent). Handles. 0: no context is current.
  Handle context() const noexcept { return contexts_.empty() ? 0 : contexts_.back(); }
  void set_context(Handle context);  // Replaces the top. 0 on a stack of one empties it.
  void push_context(Handle context);
  Handle pop_context();  // 0 when the stack is empty.

  // cuThreadExchangeStreamCaptureMode. CUDA starts a thread in global mode.
  CaptureMode capture_mode() const noexcept { return capture_mode_; }
  void set_capture_mode(CaptureMode mode) noexcept { capture_mode_ = mode; }

  // Thread state of the entry points' owner. `free_attachment` frees it when the thread ends.
  void* attachment = nullptr;
  void (*free_attachment)(void*) = nullptr;

 private:
  // The parts of a session.
  friend class CallPath;
  friend class DeferredErrors;
  friend class EarlyAnswers;
  friend class Fences;
  friend class LaneReplies;
  friend struct LaneRegistry;

  Lane() = default;
  void forget_polls() noexcept {
    early_ = not_ready_ = not_ready_event_ = 0;
    polls_since_.reset();
    stream_polls_.forget();
    own_stream_ = {};
    last_work_ = 0;
  }

  std::uint32_t id_ = 0;
  const void* home_ = nullptr;  // The registry that made it. A forked child has another one.
  std::vector<Handle> contexts_;
  CaptureMode capture_mode_ = CaptureMode::kGlobal;

  // The reply that this lane waits for. Only one, because a thread makes one call at a time.
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::uint64_t awaited_ = 0;     // Call sequence, 0: nothing. Guarded by mutex_.
  bool answered_ = false;         // Guarded by mutex_.
  std::uint64_t awaited_in_ = 0;  // The session's serial number. Guarded by mutex_.
  // Calls that the thread left by a jump. Their replies are still to come. Guarded by mutex_.
  std::uint32_t abandoned_ = 0;
  int result_ = 0;  // Guarded by mutex_ until answered_.
  std::uint64_t watermark_ = 0;
  std::uint64_t came_ = 0;         // EventCompletions::came() at the call.
  Bytes reply_;                    // Keeps its capacity from call to call.
  bool posted_ = false;            // A call was made since the last one that was answered.
  std::uint32_t early_waits_ = 0;  // Early waits since then (Session::wait_answered_early()).

  // early_: the last call that CUDA completes before it returns and that was answered early.
  // not_ready_: this lane's last query with the answer "not ready". not_ready_event_: the event of
  // that query. The worker holds a lane's queries back behind calls that were answered early to
  // that lane only.
  std::uint64_t early_ = 0;
  std::uint64_t not_ready_ = 0;
  Handle not_ready_event_ = 0;
  // The client has answered polls since this time, without any call between. Empty: it does not.
  std::optional<std::chrono::steady_clock::time_point> polls_since_;
  StreamPolls stream_polls_;
  std::uint64_t last_work_ = 0;  // This thread's last call that adds work to a stream.

  // The thread's own stream in one context (protocol::kStreamPerThread), which no other thread can
  // name: the last call to it, and the call up to which it is known to be complete
  // (docs/adr/0024).
  struct OwnStream {
    Handle context = 0;
    std::uint64_t issued = 0;
    std::uint64_t done = 0;
  };
  OwnStream own_stream_;

  // The number of non-sticky errors of the session at this lane's last check (DeferredErrors).
  struct Seen {
    Handle context;
    std::uint64_t count;
  };
  std::vector<Seen> seen_;
  std::uint64_t errors_at_birth_ = 0;
  std::uint64_t session_ = 0;  // Serial number of the session that these belong to, or 0.
};

}  // namespace gpurun::client
