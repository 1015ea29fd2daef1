// injected_fault(): a defect on demand in builds with a sanitizer. A test uses it to check that the
// sanitizer works in every process of a run (tests/sanitizers). Other builds contain no such code.
#pragma once

#if defined(GPURUN_ASAN) || defined(GPURUN_TSAN)
#define GPURUN_INJECTED_FAULTS 1
#endif

namespace gpurun {

// GPURUN_INJECTED_FAULT=`where`-overflow, -race or -undefined: makes that defect, once in a
// process.
#ifdef GPURUN_INJECTED_FAULTS
void injected_fault(const char* where) noexcept;
#else
inline void injected_fault(const char*) noexcept {}
#endif

}  // namespace gpurun
