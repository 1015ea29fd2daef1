// Where the driver of tests that gives no wished addresses gives them: free in any process, and
// away from what the client wishes for (client/interpose/device_windows.cc).
#pragma once

#include <cstdint>

namespace gpurun {

// The second is a place that ThreadSanitizer lets be used; a program does not know which it is.
inline constexpr std::uint64_t kElsewhereUsually = std::uint64_t{0x4400} << 32;
inline constexpr std::uint64_t kElsewhereWatched = std::uint64_t{0x30} << 32;
#ifdef GPURUN_TSAN
inline constexpr std::uint64_t kElsewhere = kElsewhereWatched;
#else
inline constexpr std::uint64_t kElsewhere = kElsewhereUsually;
#endif

}  // namespace gpurun
