// Copy answers: earlier writes to the source, and what the driver stages.
#include "client/early_answers/copy_answers.h"

namespace gpurun::client {
namespace {

// A larger pinned source is read by our threads at the speed of the wire. The call neither copies
// it nor waits for room.
constexpr std::uint64_t kReadAtOnceBytes = std::uint64_t{32} << 10;
// The driver stages up to this much pageable memory at once. Larger copies wait.
constexpr std::uint64_t kStagedBytes = 64 << 10;

}  // namespace

bool may_copy_early(bool may_answer_early, MemoryEnd end) noexcept {
  return may_answer_early && end != MemoryEnd::kUnknown;
}

// Pinned memory is read when the stream reaches the copy. Reading now differs only if earlier work
// (a copy out, a host function, a graph) may still write there. Otherwise the program must not
// touch the memory meanwhile. The source of a synchronous copy, and pageable memory, belong to the
// program again on return. Such a copy waits for earlier writes of the stream to its source.
// Exception: a small asynchronous copy (manual, "API synchronization behavior": it is staged
// immediately).
SourceReading choose_reading(Waiting waiting, const CopySource& source) noexcept {
  if (waiting == Waiting::kReadNow) return {};  // The program promises no earlier writes.
  if (source.stays) {
    if (source.written) return {CopyReading::kInTurn};
    return {source.bytes > kReadAtOnceBytes ? CopyReading::kSoon : CopyReading::kNow};
  }
  const bool staged = waiting != Waiting::kSynchronous && source.bytes <= kStagedBytes;
  return {CopyReading::kNow, source.written && !staged};
}

}  // namespace gpurun::client
