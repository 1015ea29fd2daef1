// planted_flaw(): a defect on demand in builds with a sanitizer. A test uses it to check that the
// sanitizer works in every process of a run (tests/sanitizers). Other builds contain no such code.
#pragma once

#if defined(GPURUN_ASAN) || defined(GPURUN_TSAN)
#define GPURUN_PLANTED_FLAWS 1
#endif

namespace gpurun {

// GPURUN_PLANTED_FLAW=`where`-overflow, -race or -undefined: makes that defect, once in a process.
#ifdef GPURUN_PLANTED_FLAWS
void planted_flaw(const char* where) noexcept;
#else
inline void planted_flaw(const char*) noexcept {}
#endif

}  // namespace gpurun
