// Client marker: the export table that only gpurun's client library has. A worker recognises the
// library by it, because with this library as its driver the worker would forward to itself. Tools
// identify the library by it. The client's NVML library gets its facts from it.
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
  std::size_t bytes;       // sizeof(ClientView): slot 0 of every table. May grow at its end.
  const NvmlSource* nvml;  // Lives forever.
  bool (*attached)();      // Whether this process has a session. Never attaches.
};

}  // namespace gpurun::driver_abi
