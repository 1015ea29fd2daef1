// Locked memory: how much of it this process may register with devices, and the share of a
// connection.
//
// The kernel counts the pages of each registration against RLIMIT_MEMLOCK, in each process, and
// answers ENOMEM beyond it (ib_umem_get()). A process with CAP_IPC_LOCK in the first user namespace
// has no limit.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/system_files.h"

namespace gpurun::transport::rdma {

// Bytes that may still be registered. Nothing: there is no limit, or it is unknown.
std::optional<std::uint64_t> lockable_bytes(const SystemFiles& files = SystemFiles());

// What a session registers beside the rings of its connections, the most important part first.
using LaterBytes = std::array<std::uint64_t, 2>;

// The ring of each of `connections` that share `lockable`: kRingBytesMin to kRingBytes. The first
// connection must not take the memory of the others. Each part of `later` is left where the
// smallest rings and the parts before it leave so much.
std::uint32_t ring_bytes_for(const std::optional<std::uint64_t>& lockable, unsigned connections,
                             const LaterBytes& later = {});

}  // namespace gpurun::transport::rdma
