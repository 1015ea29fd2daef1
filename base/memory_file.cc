// Memory files by system call.
#include "base/memory_file.h"

#include <errno.h>
#include <linux/memfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>

namespace gpurun {
namespace {

Result<UniqueFd> create(const char* name, unsigned flags) {
  // A system call, because glibc has the function only since 2.27.
  UniqueFd file(static_cast<int>(syscall(SYS_memfd_create, name, flags)));
  if (!file.valid()) return Status::from_errno(errno, "memfd_create");
  return file;
}

}  // namespace

Result<UniqueFd> create_memory_file(const char* name) { return create(name, MFD_CLOEXEC); }

Result<UniqueFd> create_sealable_memory_file(const char* name) {
  return create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

Status size_memory_file(int file, std::uint64_t bytes) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes) {
    return Status(Code::kResourceExhausted, "the limit of file sizes (ulimit -f) is too low");
  }
  if (ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    return Status::from_errno(errno, "a memory file of " + std::to_string(bytes) + " bytes");
  }
  return {};
}

}  // namespace gpurun
