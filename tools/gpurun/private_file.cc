// Private file: a new file is written beside the old one and renamed over it.
#include "tools/gpurun/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/unique_fd.h"

namespace gpurun::tools {

Status write_private_file(const std::string& path, const std::string& text) {
  for (std::size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
    mkdir(path.substr(0, at).c_str(), 0700);  // open() then reports what is missing.
  }
  const std::string fresh = path + ".new-" + std::to_string(getpid());
  unlink(fresh.c_str());
  const UniqueFd file(open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) return Status::from_errno(errno, fresh);
  const bool written =
      write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      fsync(file.get()) == 0 && rename(fresh.c_str(), path.c_str()) == 0;
  if (written) return {};
  const int error = errno;
  unlink(fresh.c_str());
  return Status::from_errno(error, path);
}

}  // namespace gpurun::tools
