// The export table that only gpurun's client library has: how a worker recognises it (a worker that
// took it for its driver would forward to itself), how tools find out who answers, and where the
// client's NVML library gets its facts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "driver_abi/nvml_source.h"

namespace gpurun::driver_abi {

// "gpurun-client-v1" as the 16 bytes of a CUuuid.
inline constexpr std::array<std::uint8_t, 16> kClientMarker = {
    'g', 'p', 'u', 'r', 'u', 'n', '-', 'c', 'l', 'i', 'e', 'n', 't', '-', 'v', '1'};

struct ClientView {
  std::size_t bytes;       // sizeof(ClientView): slot 0 of every table. It may grow at its end.
  const NvmlSource* nvml;  // Lives for ever.
};

}  // namespace gpurun::driver_abi
