// The export table that only gpurun's client library has: how a worker recognises it (a worker that
// took it for its driver would forward to itself) and how tools find out who answers.
#pragma once

#include <array>
#include <cstdint>

namespace gpurun::driver_abi {

// "gpurun-client-v1" as the 16 bytes of a CUuuid. The table is one slot: its size, 8.
inline constexpr std::array<std::uint8_t, 16> kClientMarker = {
    'g', 'p', 'u', 'r', 'u', 'n', '-', 'c', 'l', 'i', 'e', 'n', 't', '-', 'v', '1'};

}  // namespace gpurun::driver_abi
