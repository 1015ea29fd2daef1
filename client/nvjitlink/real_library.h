// Finds NVIDIA's nvJitLink, which our stand-in (stand_in.cc) is in front of.
#pragma once

#include <string>
#include <vector>

namespace gpurun::nvjitlink {

// A path of the library, or "off" (tools/gpurun/environment.h: the stand-in is not even loaded).
inline constexpr const char* kLibraryVariable = "GPURUN_NVJITLINK";

// Files in which the library may lie when it belongs to what `caller` (a path) is part of: NVIDIA's
// wheels, which Python's packages find by their own place, as we do here.
std::vector<std::string> places_near(const std::string& caller);

// One of the library's functions by its name without a version, or null: there is no library, or it
// lacks that function. `caller`: an address in who asked. The library is looked for until it is
// found, by kLibraryVariable, among what is loaded, near the caller, as the loader finds libraries,
// and in CUDA_HOME and CUDA_PATH. Any thread.
void* real_function(const char* name, const void* caller);

}  // namespace gpurun::nvjitlink
