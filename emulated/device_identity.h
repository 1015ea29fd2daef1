// Device identity: the name, UUID and PCI address of an emulated device, for CUDA and NVML.
#pragma once

#include <array>
#include <cstdint>

namespace gpurun::emulated {

inline constexpr char kDeviceName[] = "gpurun emulated device";

// "gpurun-emulated" and the index before CUDA_VISIBLE_DEVICES. It is the same in every process, as
// on a real machine. The first byte counts up from 'g', so that abbreviated UUIDs name one device.
inline std::array<std::uint8_t, 16> device_uuid(int physical) {
  std::array<std::uint8_t, 16> uuid{};
  constexpr char kText[] = "gpurun-emulated";
  static_assert(sizeof kText == 16);
  for (std::size_t i = 0; i < 15; ++i) uuid[i] = static_cast<std::uint8_t>(kText[i]);
  uuid[0] = static_cast<std::uint8_t>(uuid[0] + physical);
  uuid[15] = static_cast<std::uint8_t>(physical);
  return uuid;
}

// The bus number: 1 for the first device, "0000:01:00.0".
inline int device_pci_bus(int physical) { return physical + 1; }

}  // namespace gpurun::emulated
