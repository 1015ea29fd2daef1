// VisibleDevices: the devices of a machine that CUDA_VISIBLE_DEVICES leaves visible. The client
// library and the emulated device share it.
//
// The value is a list, separated by commas, of numbers and of UUIDs ("GPU-..."). A UUID may be
// shortened as long as it identifies one device. The list ends at the first entry that names no
// device. A device that is named twice leaves no visible device (CUDA Programming Guide, "CUDA
// Environment Variables"). A number is read as by strtoul(), and text after its digits is ignored
// (PyTorch's torch/cuda/__init__.py follows the driver in this).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpurun::driver_abi {

using DeviceUuid = std::array<std::uint8_t, 16>;

// "GPU-00010203-0405-..." as nvidia-smi and NVML write it.
std::string uuid_text(const DeviceUuid& uuid);

// The positions in `devices` of the visible devices, in the order of the program's numbers.
// `value`: the variable's value, nullptr if it is not set.
std::vector<int> visible_devices(const char* value, std::span<const DeviceUuid> devices);

// `value` up to its first `count` entries. Repeated entries stay, because they leave no device.
std::string first_visible(std::string_view value, std::size_t count);

}  // namespace gpurun::driver_abi
