// HostMemoryChoice: what the user wants of pinned and managed memory (GPURUN_HOST_MEMORY).
#pragma once

#include <cstdint>

namespace gpurun::client::interpose {

enum class HostMemoryChoice : std::uint8_t {
  // Unset. Within a machine the device reaches pinned and managed memory (docs/adr/0040). Elsewhere
  // the worker has copies of managed memory, and of pinned memory that the program wants mapped
  // (docs/adr/0042).
  kReached,
  // "mirror": the worker has copies of all pinned and managed memory, within a machine, too.
  kMirrored,
  // "copy": the device reaches none. There is no managed memory.
  kCopied,
  // "compare": as unset. But the program's writes to what the worker has copies of are found by
  // comparison alone. The kernel's notes miss what hardware or io_uring writes to memory by itself.
  kCompared,
  // "check": the worker has copies, within a machine, too. An access of the host to managed memory
  // while work is under way is reported (client/host_memory/access_check.h).
  kChecked,
};

// Read once. Another text counts as unset, with a warning. Any thread.
HostMemoryChoice host_memory_choice() noexcept;

}  // namespace gpurun::client::interpose
