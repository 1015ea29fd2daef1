// ThisLease: the facts of this process's lease, for the names that it shows.
#pragma once

#include <sys/stat.h>

#include "client/device_files/names.h"

namespace gpurun::client::device_files {

// "off": the process sees no file of ours.
inline constexpr const char* kVariable = "GPURUN_DEVICE_FILES";

// The number of GPUs is in the file that GPURUN_SESSION names. Everything else comes from the
// client library beside this one, which attaches the process at the first such question.
const Lease& this_lease() noexcept;

// find_entry() for a path that the C library does not have (ENOENT). Leaves errno as it is. NULL
// and failures of memory find nothing.
Entry shown_entry(const char* path) noexcept;

// What stat(2) returns for an entry.
void fill_status(const Entry& entry, struct stat* status) noexcept;

// A new descriptor of a memory file with a file's content, at its beginning. -1: errno is set.
// ENXIO for a device, because no kernel driver answers behind it. ENOENT for a folder.
int open_entry(const Entry& entry, int flags) noexcept;

}  // namespace gpurun::client::device_files
