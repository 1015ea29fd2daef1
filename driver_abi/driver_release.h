// DriverRelease: the version of a driver in NVML's form ("580.95.05"), for a driver that is known
// only by its CUDA version. Programs parse it, so it consists of numbers.
#pragma once

#include <string_view>

namespace gpurun::driver_abi {

// A release that introduced `cuda_version` (13000 is CUDA 13.0). For a later version it is the
// newest release that this table has (CUDA Toolkit Release Notes, "CUDA Toolkit and Corresponding
// Driver Versions"). Terminated by a NUL.
constexpr std::string_view driver_release(int cuda_version) noexcept {
  if (cuda_version >= 13010) return "590.44.01";
  if (cuda_version >= 13000) return "580.95.05";
  if (cuda_version >= 12090) return "575.51.03";
  if (cuda_version >= 12080) return "570.86.10";
  return "525.60.13";
}

// Whether programs can parse `text`: numbers with dots between them.
constexpr bool is_driver_release(std::string_view text) noexcept {
  bool digit = false;
  for (const char each : text) {
    if (each == '.' ? !digit : each < '0' || each > '9') return false;
    digit = each != '.';
  }
  return digit && text.size() < 32 && text.find('.') != std::string_view::npos;
}

}  // namespace gpurun::driver_abi
