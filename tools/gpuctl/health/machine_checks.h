// Machine checks: limits of this process, shared memory, containers and NVIDIA's driver.
#pragma once

#include <cstdint>
#include <string>

#include "base/system_files.h"
#include "tools/gpuctl/health/check.h"

namespace gpurun::tools {

inline constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};

// What this process may use.
struct MachineLimits {
  std::uint64_t locked_bytes = kUnlimited;
  std::uint64_t descriptors_soft = kUnlimited, descriptors_hard = kUnlimited;
  std::uint64_t file_bytes_hard = kUnlimited;
  // Of /dev/shm. Both 0: it is missing.
  std::uint64_t shared_memory_bytes = 0, shared_memory_free = 0;
  std::string no_memory_file;  // Why no memory file can be made. Empty: it can.
  std::string container;       // The variable `container`, which container managers set.
};
MachineLimits this_machine();

Checks machine_checks(const SystemFiles& files, const MachineLimits& limits);

// "docker", "podman", ... or "container" for an unknown kind. Empty: this is not a container.
std::string container_kind(const SystemFiles& files, const std::string& variable);

}  // namespace gpurun::tools
