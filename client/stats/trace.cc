// write_trace_file(): writes one file in parts, and gives it its name when it is whole.
#include "client/stats/trace.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/unique_fd.h"

namespace gpurun::client {
namespace {

// Replaces a file of that name, which an earlier process left when it was killed during the write.
Status write_new(const std::string& path, ByteView bytes) {
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return Status::from_errno(errno, path);
  const UniqueFd to(
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW, 0600));
  if (to.get() < 0) return Status::from_errno(errno, path);
  while (!bytes.empty()) {
    const ssize_t written = write(to.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return Status::from_errno(errno, path);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

}  // namespace

Status write_trace_file(const std::string& folder, const protocol::TraceFile& file) {
  const std::string path = folder + "/" + file.program + "." + std::to_string(file.process) +
                           std::string(protocol::kTraceSuffix);
  const Bytes bytes = protocol::encode(file);
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes.size() > limit.rlim_cur) {
    return Status(Code::kTooLarge, path + ": larger than files of this process may be");
  }
  // Another name at first: a process that is killed here leaves nothing that gpuctl takes for a
  // trace.
  const std::string part = path + ".part";
  Status written = write_new(part, bytes);
  if (written.ok() && rename(part.c_str(), path.c_str()) != 0) {
    written = Status::from_errno(errno, path);
  }
  if (!written.ok()) unlink(part.c_str());
  return written;
}

}  // namespace gpurun::client
