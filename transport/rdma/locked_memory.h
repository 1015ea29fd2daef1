// Locked memory: how much of it this process may register with devices, and the share of a
// connection.
//
// The kernel counts the pages of each registration against RLIMIT_MEMLOCK, in each process, and
// answers ENOMEM beyond it (ib_umem_get()). A process with CAP_IPC_LOCK in the first user namespace
// has no limit.
#pragma once

#include <cstdint>
#include <optional>

#include "base/system_files.h"

namespace gpurun::transport::rdma {

// Bytes that may still be registered. Nothing: there is no limit, or it is unknown.
std::optional<std::uint64_t> lockable_bytes(const SystemFiles& files = SystemFiles());

// The ring of each of `connections` that share `lockable`: kRingBytesMin to kRingBytes. The first
// connection must not take the memory of the others. `later_bytes`: what the process registers
// beside the rings. It is left, unless the smallest rings leave less.
std::uint32_t ring_bytes_for(const std::optional<std::uint64_t>& lockable, unsigned connections,
                             std::uint64_t later_bytes = 0);

}  // namespace gpurun::transport::rdma
