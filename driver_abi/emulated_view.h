// The export table that only gpurun's emulated device has: what a forwarding worker must know of it
// beyond CUDA's own interface (docs/man/gpurun-emulated.7.md, library_capability).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace gpurun::driver_abi {

// "gpurun-emulated1" as the 16 bytes of a CUuuid.
inline constexpr std::array<std::uint8_t, 16> kEmulatedMarker = {
    'g', 'p', 'u', 'r', 'u', 'n', '-', 'e', 'm', 'u', 'l', 'a', 't', 'e', 'd', '1'};

struct EmulatedView {
  std::size_t bytes;  // sizeof(EmulatedView): slot 0 of every table.
  // Compute capability (major * 10 + minor) that NVIDIA's math libraries are told; 0: as everybody.
  int (*library_capability)();
  // Bytes of device memory in use, by this process and those that share the device with it; 0 for a
  // device that is not there or not visible.
  // `physical`: the device's index before CUDA_VISIBLE_DEVICES.
  std::uint64_t (*used_bytes)(int physical);
};

}  // namespace gpurun::driver_abi
