// What cuGetProcAddress answers: which row a base name means at a CUDA version and stream flag.
//
// Rules: CUDA driver API, "Driver Entry Point Access", and cudaTypedefs.h: a symbol is known by
// (base name, version that introduced it, stream variant); of those that the asked version covers,
// the newest is meant. The address itself belongs to the library that asks (entry_point()).
#pragma once

#include <cstdint>
#include <limits>

#include "driver_abi/row.h"

namespace gpurun::driver_abi {

// CUdriverProcAddress_flags.
inline constexpr std::uint64_t kProcDefault = 0;
inline constexpr std::uint64_t kProcLegacyStream = 1;
inline constexpr std::uint64_t kProcPerThreadStream = 2;  // Prefers _ptds and _ptsz, if any.

struct ProcAddress {
  int result;  // CUresult: 0, 1 (INVALID_VALUE: symbol is null, flags unknown), 500 (NOT_FOUND).
  int status;  // CUdriverProcAddressQueryResult: 0 found, 1 no such symbol, 2 newer than asked.
  const Row* row;  // nullptr unless result is 0.
};

// Any thread; no allocation. cuGetProcAddress_v2 writes `status` where the program gave it room,
// except with result 1, and writes null to the program's pointer when row is null and result 500.
// `driver_version`: of the driver that the program is to see (as cuDriverGetVersion tells it); what
// came later is unknown to it.
ProcAddress find_proc_address(const char* base, int cuda_version, std::uint64_t flags,
                              int driver_version = std::numeric_limits<int>::max()) noexcept;

}  // namespace gpurun::driver_abi
