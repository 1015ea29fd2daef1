// Runtime folder: made first and checked afterwards, so that a process that made it before gains
// nothing.
#include "server/daemon/users/runtime_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gpurun::server {

Result<UniqueFd> open_runtime_folder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return Status::from_errno(errno, path);
  UniqueFd folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder.valid()) return Status::from_errno(errno, path);
  struct stat facts {};
  if (fstat(folder.get(), &facts) != 0) return Status::from_errno(errno, path);
  if (facts.st_uid != geteuid() || (facts.st_mode & 022) != 0) {
    return Status(Code::kRefused, path + " is not a folder that only this user may write");
  }
  return folder;
}

}  // namespace gpurun::server
