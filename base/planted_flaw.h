// Flaws that builds with a sanitizer make on demand, so that a test can tell that the sanitizer
// sees into every process of a run (tests/sanitizers). All other builds have nothing of it.
#pragma once

#if defined(GPURUN_ASAN) || defined(GPURUN_TSAN)
#define GPURUN_PLANTED_FLAWS 1
#endif

namespace gpurun {

// GPURUN_PLANTED_FLAW=`where`-overflow, -race or -undefined: goes wrong that way, once in a
// process.
#ifdef GPURUN_PLANTED_FLAWS
void planted_flaw(const char* where) noexcept;
#else
inline void planted_flaw(const char*) noexcept {}
#endif

}  // namespace gpurun
