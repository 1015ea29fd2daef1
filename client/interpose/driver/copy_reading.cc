// Copy reading: earlier writes to the source, and what the driver stages.
#include "client/interpose/driver/copy_reading.h"

#include <chrono>

#include "client/interpose/call/stream.h"
#include "client/interpose/memory/memory_ranges.h"

namespace gpurun::client::interpose {
namespace {

// A larger pinned source is read by our threads at the speed of the wire. The call neither copies
// it nor waits for room.
constexpr std::uint64_t kReadAtOnceBytes = std::uint64_t{32} << 10;
// How long a synchronous copy to the device waits until earlier sources are read. Compared with
// this time a round trip to the device is cheap.
constexpr std::chrono::milliseconds kSourcesReadWithin{20};
// The driver stages up to this much pageable memory at once. Larger copies wait.
constexpr std::uint64_t kStagedBytes = 64 << 10;

}  // namespace

// A synchronous copy to the device implies that the earlier work of blocking streams is done. The
// program could notice only by three things: bytes that arrive in its memory, its queries, and an
// earlier source that it overwrites. The worker answers queries after the copy. A copy of a
// non-blocking stream may read its source only in a later call. Then this copy waits for the device
// as CUDA does.
bool may_return_early(const EntryContext& here, const CallSite& site, const CopySide& destination,
                      Waiting waiting) {
  if (waiting != Waiting::kSynchronous || !here.session().may_answer_early()) return false;
  if (destination.place != Place::kArray) {
    const auto range = find_range(destination.address);
    // Unloading a module ends its variables, so nothing can use what was copied there.
    if (!range.has_value() ||
        (!range->ends_behind(site.context) && range->kind != MemoryKind::kModule)) {
      return false;
    }
  }
  return here.session().sources_read_within(kSourcesReadWithin);
}

// Pinned memory is read when the stream reaches the copy. Reading now differs only if earlier work
// (a copy out, a host function, a graph) may still write there. Otherwise the program must not
// touch the memory meanwhile. The source of a synchronous copy, and pageable memory, belong to the
// program again on return. Such a copy waits for earlier writes of the stream to its source.
// Exception: a small asynchronous copy (manual, "API synchronization behavior": it is staged
// immediately).
int choose_reading(const EntryContext& here, const CallSite& site, Waiting waiting, bool stays,
                   ByteView source, Session::Reading* reading) {
  using Reading = Session::Reading;
  const bool written = here.session().may_still_write(source);
  *reading = Reading::kNow;
  if (waiting == Waiting::kReadNow) return 0;  // The program promises no earlier writes.
  if (stays) {
    *reading = written                            ? Reading::kInTurn
               : source.size() > kReadAtOnceBytes ? Reading::kSoon
                                                  : Reading::kNow;
    return 0;
  }
  const bool staged = waiting != Waiting::kSynchronous && source.size() <= kStagedBytes;
  return written && !staged ? synchronize_stream(here, site.stream) : 0;
}

}  // namespace gpurun::client::interpose
