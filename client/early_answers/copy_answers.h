// Copy answers: whether a copy to the device may return before it is complete, and when its source
// is read (docs/adr/0013). client/interpose/driver/copy_waits.h carries them out.
#pragma once

#include <chrono>
#include <cstdint>

#include "client/early_answers/memory_end.h"

namespace gpurun::client {

// What a copy's caller waits for.
enum class Waiting : std::uint8_t {
  kSynchronous,   // cuMemcpy: complete on return, or not distinguishable from complete.
  kAsynchronous,  // cuMemcpyAsync: still waits for pageable memory.
  kReadNow,       // As kAsynchronous, but reads a host source at once, in no stream's order.
};

// When a copy reads its host source.
enum class CopyReading : std::uint8_t {
  kNow,   // Before the call returns. The program may then change or free it.
  kSoon,  // As the wire allows. It stays untouched until the copy completes (pinned).
  // As kSoon, but not before the stream reaches the copy, because earlier work may still write to
  // the source (Session::may_still_write()).
  kInTurn,
  // By the worker's device, as kSoon or as kInTurn, after Session::may_pull() (docs/adr/0048). No
  // thread of this process reads it, unless the worker cannot.
  kPulledSoon,
  kPulledInTurn
};

constexpr bool is_pulled(CopyReading reading) noexcept {
  return reading == CopyReading::kPulledSoon || reading == CopyReading::kPulledInTurn;
}

// How the bytes of a copy from the device come.
enum class CopyArrival : std::uint8_t {
  kSent,  // As chunks, on the log, or in the reply.
  // Written into lent memory by the worker's device, after Session::may_be_written()
  // (docs/adr/0054). No thread of this process touches them, unless the worker cannot write.
  kWritten
};

// A synchronous copy to the device returns early only if the sources of earlier copies have been
// read within this time. Compared with it, a round trip to the device is cheap.
inline constexpr std::chrono::milliseconds kSourcesReadWithin{20};

// Returns whether a synchronous copy to the device may return before it is complete.
// `may_answer_early` is EarlyAnswers::may_answer_early(), and `end` is that of the destination.
//
// Such a copy implies that the earlier work of blocking streams is done. The program could notice
// only by three things: bytes that arrive in its memory, its queries, and an earlier source that it
// overwrites. EarlyAnswers excludes the first. The worker answers queries after the copy. A copy of
// a non-blocking stream may read its source only in a later call. The caller therefore also waits
// for kSourcesReadWithin, and then for the device as CUDA does.
bool may_copy_early(bool may_answer_early, MemoryEnd end) noexcept;

// The source of a copy to the device.
struct CopySource {
  std::uint64_t bytes = 0;
  bool stays = false;    // It does not change until the copy is complete, except by earlier work.
  bool written = false;  // Earlier work may still write to it (Session::may_still_write()).
};

struct SourceReading {
  CopyReading when = CopyReading::kNow;
  bool wait_first = false;  // The call waits for the copy's stream before it reads.
};

// Decides when the source is read.
SourceReading choose_reading(Waiting waiting, const CopySource& source) noexcept;

}  // namespace gpurun::client
