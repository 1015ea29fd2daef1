// Windows wanted: whether this process may hold windows of device addresses.
#pragma once

namespace gpurun::client::interpose {

// False with GPURUN_DEVICE_WINDOWS=off, and when the address space is limited.
bool windows_wanted() noexcept;

}  // namespace gpurun::client::interpose
