// VisibleDevices: what CUDA_VISIBLE_DEVICES leaves of a machine's devices, for the client library
// and the emulated device alike.
//
// The value is a list, separated by commas, of numbers and of UUIDs ("GPU-..."), which may be cut
// as long as they mean one device. The list ends at the first entry that names no device, and a
// device that is named twice leaves none (CUDA Programming Guide, "CUDA Environment Variables"). A
// number is read as strtoul() does, and what follows its digits is ignored (PyTorch's
// torch/cuda/__init__.py follows the driver in this).
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

// The positions in `devices` of what is visible, in the order of the program's numbers. `value`:
// the variable's, nullptr where it is not set.
std::vector<int> visible_devices(const char* value, std::span<const DeviceUuid> devices);

// `value` without what follows its first `count` entries. Entries that repeat one another stay, as
// they leave no device.
std::string first_visible(std::string_view value, std::size_t count);

}  // namespace gpurun::driver_abi
