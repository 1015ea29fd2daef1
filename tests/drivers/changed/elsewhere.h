// Elsewhere: the addresses at which the test driver places reservations. They are free in every
// process, and differ from the client's requests (client/interpose/memory/device_windows.cc).
#pragma once

#include <cstdint>

namespace gpurun {

// ThreadSanitizer allows only the second address. A program does not know which one the driver
// uses.
inline constexpr std::uint64_t kElsewhereUsually = std::uint64_t{0x4400} << 32;
inline constexpr std::uint64_t kElsewhereWatched = std::uint64_t{0x30} << 32;
#ifdef GPURUN_TSAN
inline constexpr std::uint64_t kElsewhere = kElsewhereWatched;
#else
inline constexpr std::uint64_t kElsewhere = kElsewhereUsually;
#endif

}  // namespace gpurun
