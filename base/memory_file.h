// Memory files: files without a name that exist in memory only.
#pragma once

#include "base/result.h"
#include "base/unique_fd.h"

namespace gpurun {

// `name` is shown in /proc only. An error is that of memfd_create(2). The descriptor is closed by
// exec().
Result<UniqueFd> create_memory_file(const char* name);

// A memory file that takes seals (fcntl(2), F_ADD_SEALS), so that other processes cannot change its
// size.
Result<UniqueFd> create_sealable_memory_file(const char* name);

}  // namespace gpurun
