// real_function(): finds functions of NVIDIA's nvJitLink, which our stand-in (stand_in.cc)
// replaces.
#pragma once

#include <string>
#include <vector>

namespace gpurun::nvjitlink {

// A path of the library, or "off" (tools/gpurun/environment.h: the stand-in is not even loaded).
inline constexpr const char* kLibraryVariable = "GPURUN_NVJITLINK";

// Returns the files in which the library may be if it belongs to the same package tree as `caller`
// (a path). NVIDIA's wheels are found by their own place, as in Python's packages.
std::vector<std::string> places_near(const std::string& caller);

// Returns one of the library's functions by its name without a version. Returns null if there is no
// library, or if it lacks that function. `caller` is an address in the calling code. The search
// repeats until it succeeds: by kLibraryVariable, among loaded libraries, near the caller, as the
// loader finds libraries, and in CUDA_HOME and CUDA_PATH. Any thread.
void* real_function(const char* name, const void* caller);

}  // namespace gpurun::nvjitlink
