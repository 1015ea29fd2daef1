// Error numbers: the CUresults that the worker itself decides (cuda.h). All others come from the
// driver.
#pragma once

namespace gpurun::server {

inline constexpr int kErrorInvalidValue = 1;
inline constexpr int kErrorOutOfMemory = 2;
inline constexpr int kErrorInvalidContext = 201;
inline constexpr int kErrorInvalidHandle = 400;
inline constexpr int kErrorNotReady = 600;
inline constexpr int kErrorNotSupported = 801;
inline constexpr int kErrorUnknown = 999;

}  // namespace gpurun::server
