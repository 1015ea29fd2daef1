// Rows by key: the rows in the order that cuGetProcAddress searches. For proc_address.cc only.
#pragma once

#include <cstdint>
#include <span>

namespace gpurun::driver_abi {

// Opcodes by base name (as strcmp orders), then by version.
std::span<const std::uint16_t> opcodes_by_key() noexcept;

}  // namespace gpurun::driver_abi
