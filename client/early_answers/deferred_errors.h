// DeferredErrors: failures of calls that the client had already answered with success
// (architecture, section 5).
//
// Every later call on its context returns a sticky error. Any other error is delivered once to each
// lane. The lane that made the call gets it at its next fence. Other lanes get it at their first
// fence on that context. A lane gets no error older than its own first call. When several errors
// wait for one fence, the fence returns the oldest. The others count as delivered, as with the last
// error of CUDA's runtime.
//
// The thread that reads the log calls add(). Any thread with its own lane calls the rest.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "client/log/handles.h"

namespace gpurun::client {

class Lane;

class DeferredErrors {
 public:
  struct Error {
    std::uint64_t number = 0;  // 1, 2, 3, ... in order of arrival.
    Handle context = 0;        // 0: every context.
    std::uint32_t lane = 0;
    std::uint16_t opcode = 0;
    int result = 0;  // CUresult, never 0.
    std::uint64_t call_sequence = 0;
  };
  // Non-sticky errors that are kept. A lane that asks too late misses older ones, which were
  // logged.
  static constexpr std::size_t kKept = 64;
  // Contexts that can be lost in one session.
  static constexpr std::size_t kStickyMax = 4096;

  // Numbers the error. Returns false beyond kStickyMax.
  bool add(Error error, bool sticky);

  // `lane` makes its first call in the session with that serial number. It gets no older error.
  void adopt(Lane& lane, std::uint64_t session) const;

  // The context lives again (a primary one), so it is no longer lost.
  void forget(Handle context);

  // Returns the error of a lost context (0: of any call), or 0. Takes no lock while none is lost.
  int sticky(Handle context) const noexcept;

  // Returns what a fence of `lane` on `context` must deliver, or 0.
  int take(Lane& lane, Handle context);

 private:
  struct Sticky {
    Handle context;
    int result;
  };

  std::atomic<std::uint64_t> count_{0};  // All non-sticky ones so far.
  std::atomic<std::size_t> sticky_count_{0};
  mutable std::mutex mutex_;
  std::array<Error, kKept> kept_{};  // By number % kKept.
  std::vector<Sticky> sticky_;
};

}  // namespace gpurun::client
