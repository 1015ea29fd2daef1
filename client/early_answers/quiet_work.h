// Quiet work: fills and copies that end soon and by themselves. A later wait for their stream is
// answered early (docs/adr/0033).
#pragma once

#include <cstdint>

#include "client/early_answers/memory_end.h"
#include "client/early_answers/stream_progress.h"
#include "protocol/limits.h"

namespace gpurun::client {

// Larger fills and copies take longer than the time for which they may be reported as done early.
inline constexpr std::uint64_t kQuietFillBytesMax = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kQuietCopyBytesMax = std::uint64_t{8} << 10;
static_assert(kQuietCopyBytesMax <= limits::kInlineBytesMax, "their bytes are in their records");

// Returns the work of a fill. `end` is that of the memory that it fills.
constexpr Work work_of_fill(std::uint64_t bytes, MemoryEnd end) noexcept {
  return bytes <= kQuietFillBytesMax && end == MemoryEnd::kBehindWork ? Work::kQuiet : Work::kAny;
}

// Returns the work of an asynchronous copy of one line to the device.
constexpr Work work_of_copy(std::uint64_t bytes, MemoryEnd end) noexcept {
  return bytes <= kQuietCopyBytesMax && end == MemoryEnd::kBehindWork ? Work::kQuiet : Work::kAny;
}

}  // namespace gpurun::client
