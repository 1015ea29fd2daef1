// DeferredErrors: failures of calls that the client had already answered with success
// (architecture, section 5).
//
// A sticky one is returned by every later call on its context. Any other is told once to each
// lane: to the lane that made the call at its next fence, to others at their first fence on that
// context. A lane sees no error older than its own first call. When several wait for one fence it
// tells the oldest; the others count as told, as with the last error of CUDA's runtime.
//
// add() comes from who reads the log, everything else from any thread with its own lane.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "client/handles.h"

namespace gpurun::client {

class Lane;

class DeferredErrors {
 public:
  struct Error {
    std::uint64_t number = 0;  // 1, 2, 3, ... in order of arrival.
    Handle context = 0;        // 0: of every context.
    std::uint32_t lane = 0;
    std::uint16_t opcode = 0;
    int result = 0;  // CUresult, never 0.
    std::uint64_t call_sequence = 0;
  };
  // Non-sticky errors kept; an older one that no lane asked for by then is lost (but was logged).
  static constexpr std::size_t kKept = 64;
  // Contexts that can be lost in one session.
  static constexpr std::size_t kStickyMax = 4096;

  // Numbers the error. False: over kStickyMax.
  bool add(Error error, bool sticky);

  // `lane` makes its first call in the session of that serial number: nothing older is told to it.
  void adopt(Lane& lane, std::uint64_t session) const;

  // The context lives again (a primary one): it is not lost any more.
  void forget(Handle context);

  // Of a lost context (0: any call), else 0. No lock as long as none is lost.
  int sticky(Handle context) const noexcept;

  // What a fence of `lane` on `context` has to tell, else 0.
  int take(Lane& lane, Handle context);

 private:
  struct Sticky {
    Handle context;
    int result;
  };

  std::atomic<std::uint64_t> count_{0};  // Non-sticky ones, ever.
  std::atomic<std::size_t> sticky_count_{0};
  mutable std::mutex mutex_;
  std::array<Error, kKept> kept_{};  // By number % kKept.
  std::vector<Sticky> sticky_;
};

}  // namespace gpurun::client
