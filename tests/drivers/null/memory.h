// Memory of the null device: device memory is host memory, so every copy is a memcpy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "driver_abi/cuda_abi.h"

namespace gpurun::null_device {

inline constexpr std::size_t kDeviceBytes = std::size_t{16} << 30;

enum class MemoryKind : std::uint8_t { kDevice, kHost, kRegistered, kReserved };

struct Range {
  std::uint64_t base;
  std::size_t bytes;
  MemoryKind kind;
};

// Returns zeroed memory, aligned to 512 bytes. 0: no room.
std::uint64_t allocate(std::size_t bytes, MemoryKind kind);
// False: nothing of that kind begins there.
bool release(std::uint64_t base, MemoryKind kind);
void remember(const Range& range);
// The range that contains `address`.
std::optional<Range> range_of(std::uint64_t address);
std::size_t used_device_bytes();
// Accounts for device memory that lies elsewhere (cuMemCreate). False: not enough is left.
bool charge(std::size_t bytes);
void discharge(std::size_t bytes);

}  // namespace gpurun::null_device
