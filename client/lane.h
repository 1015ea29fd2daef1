// Lane: the identity of one thread of the program inside a session: what CUDA keeps per thread
// (current contexts, capture mode, default stream, errors not yet told) and where its reply lands.
//
// A lane comes to life with its thread's first call and goes back with the thread; ids are reused,
// so ten thousand short threads cost what the most that lived at once cost. The worker knows lanes
// only by id: stream 2 of a lane is one stream of the worker per (lane id, context).
//
// A lane is used by its own thread alone, except where a comment says who reads the log.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "client/handles.h"
#include "protocol/limits.h"

namespace gpurun::client {

class Session;

// Values of CUstreamCaptureMode (cuda.h).
enum class CaptureMode : int { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };

class Lane {
 public:
  // The calling thread's lane; nullptr when limits::kLanesMax threads have one already
  // (the caller returns CUDA_ERROR_OUT_OF_MEMORY). Made at the thread's first call.
  static Lane* current() noexcept;
  // Lanes that live now, and the most that ever did. For tests and the statistics.
  static std::size_t live_count() noexcept;
  static std::size_t peak_count() noexcept;

  std::uint32_t id() const noexcept { return id_; }

  // The context stack (cuCtxPushCurrent, cuCtxSetCurrent). Handles; 0: none is current.
  Handle context() const noexcept { return contexts_.empty() ? 0 : contexts_.back(); }
  void set_context(Handle context);  // Replaces the top; 0 on a stack of one empties it.
  void push_context(Handle context);
  Handle pop_context();  // 0 when the stack is empty.
  // Removes a destroyed context wherever it stands.
  void forget_context(Handle context);

  // cuThreadExchangeStreamCaptureMode; CUDA starts a thread in global mode.
  CaptureMode capture_mode() const noexcept { return capture_mode_; }
  void set_capture_mode(CaptureMode mode) noexcept { capture_mode_ = mode; }

  // A place for the owner of the entry points to keep thread state of its own; freed with
  // `free_attachment` when the thread ends.
  void* attachment = nullptr;
  void (*free_attachment)(void*) = nullptr;

 private:
  friend class Session;
  friend class DeferredErrors;
  friend struct LaneRegistry;

  Lane() = default;
  void forget_polls() noexcept {
    early_ = not_ready_ = not_ready_event_ = 0;
    polls_since_.reset();
  }

  std::uint32_t id_ = 0;
  const void* home_ = nullptr;  // The registry that made it: a forked child has another one.
  std::vector<Handle> contexts_;
  CaptureMode capture_mode_ = CaptureMode::kGlobal;

  // The reply that this lane waits for. One at a time: a thread makes one call at a time.
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::uint64_t awaited_ = 0;     // Call sequence, 0: nothing. Guarded by mutex_.
  bool answered_ = false;         // Guarded by mutex_.
  std::uint64_t awaited_in_ = 0;  // The session's serial number. Guarded by mutex_.
  // Calls that a thread left by a jump before the reply came: these come yet. Guarded by mutex_.
  std::uint32_t abandoned_ = 0;
  int result_ = 0;  // Guarded by mutex_ until answered_.
  std::uint64_t watermark_ = 0;
  std::uint64_t came_ = 0;         // EventCompletions::came() when it was called.
  Bytes reply_;                    // Keeps its capacity from call to call.
  bool posted_ = false;            // A call since the last one that was answered.
  std::uint32_t early_waits_ = 0;  // Likewise (Session::wait_answered_early()).

  // The last call that CUDA completes before it returns and that was answered early, and the last
  // question of this lane's that was answered with "not ready", and about which event: the worker
  // holds questions back behind what was answered early to their lane, and to no other.
  std::uint64_t early_ = 0;
  std::uint64_t not_ready_ = 0;
  Handle not_ready_event_ = 0;
  // Since when polls are answered here without any call between; empty: they are not.
  std::optional<std::chrono::steady_clock::time_point> polls_since_;

  // How many non-sticky errors the session had when this lane last looked (DeferredErrors).
  struct Seen {
    Handle context;
    std::uint64_t count;
  };
  std::vector<Seen> seen_;
  std::uint64_t errors_at_birth_ = 0;
  std::uint64_t session_ = 0;  // Serial number of the session that these are of; 0: none.
};

}  // namespace gpurun::client
