// Proc address: the answers of cuGetProcAddress: the row that a base name means at a CUDA version
// and stream flag.
//
// Rules: CUDA driver API, "Driver Entry Point Access", and cudaTypedefs.h. A symbol is identified
// by (base name, version that introduced it, stream variant). The newest symbol that the requested
// version covers is the answer. The address itself belongs to the library that asks
// (entry_point()).
#pragma once

#include <cstdint>
#include <limits>

#include "driver_abi/row.h"

namespace gpurun::driver_abi {

// CUdriverProcAddress_flags.
inline constexpr std::uint64_t kProcDefault = 0;
inline constexpr std::uint64_t kProcLegacyStream = 1;
inline constexpr std::uint64_t kProcPerThreadStream = 2;  // Prefers _ptds and _ptsz, if they exist.

struct ProcAddress {
  int result;  // CUresult: 0, 1 (INVALID_VALUE: symbol is null, flags unknown), 500 (NOT_FOUND).
  int status;  // CUdriverProcAddressQueryResult: 0 found, 1 no such symbol, 2 newer than asked.
  const Row* row;  // nullptr unless result is 0.
};

// Any thread, no allocation. cuGetProcAddress_v2 writes `status` if the program passed a place for
// it, except with result 1. It writes null to the program's pointer when row is null and result is
// 500. `driver_version`: the version of the driver that the program sees (cuDriverGetVersion).
// Later symbols are unknown to it.
ProcAddress find_proc_address(const char* base, int cuda_version, std::uint64_t flags,
                              int driver_version = std::numeric_limits<int>::max()) noexcept;

}  // namespace gpurun::driver_abi
