// Memory changes: changes of executables that use device memory, as the driver may judge them
// (exec_changes.h).
#pragma once

#include <cstdint>
#include <initializer_list>

#include "client/interpose/capture/exec_changes.h"

namespace gpurun::client::interpose {

// Describes a fill or a copy on the device. `what` is all of it but its memory. An allocation
// stands for the addresses in it, so each must be memory of the program that only a free ends.
// Otherwise the description is empty.
ExecChange memory_change_of(const HandleTable& handles, Handle node,
                            std::initializer_list<std::uint64_t> what,
                            std::initializer_list<std::uint64_t> addresses);

}  // namespace gpurun::client::interpose
