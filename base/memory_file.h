// Memory files: files without a name that exist in memory only.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/unique_fd.h"

namespace gpurun {

// `name` is shown in /proc only. An error is that of memfd_create(2). The descriptor is closed by
// exec().
Result<UniqueFd> create_memory_file(const char* name);

// A memory file that takes seals (fcntl(2), F_ADD_SEALS), so that other processes cannot change its
// size.
Result<UniqueFd> create_sealable_memory_file(const char* name);

// Gives a memory file its size. Above the limit of file sizes ftruncate(2) would end the process by
// a signal, so this function looks at the limit first.
//   kResourceExhausted  the limit (ulimit -f) is too low.
Status size_memory_file(int file, std::uint64_t bytes);

}  // namespace gpurun
