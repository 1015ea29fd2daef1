// write_whole(): writes the rest after a short write, and that write fails with the reason.
#include "base/write_whole.h"

#include <unistd.h>

#include <cerrno>

namespace gpurun {

Status write_whole(int fd, ByteView bytes, const std::string& name, std::size_t* written) {
  std::size_t done = 0;
  Status status;
  while (done < bytes.size() && status.ok()) {
    const ssize_t count = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (count > 0) done += static_cast<std::size_t>(count);
    if (count == 0) status = Status(Code::kUnavailable, name + ": nothing more can be written");
    if (count < 0 && errno != EINTR) status = Status::from_errno(errno, name);
  }
  if (written != nullptr) *written = done;
  return status;
}

}  // namespace gpurun
