// File size limit: set once in this process, before it starts any other.
#include "tools/gpurun/file_limit.h"

#include <signal.h>
#include <sys/resource.h>

#include <cerrno>
#include <string>

namespace gpurun::tools {
namespace {

// For the session, and the pages that gpurun shares with the program's processes.
constexpr rlim_t kBytesMin = 128 << 10;

struct Before {
  bool known = false;
  rlimit limit = {};
  struct sigaction action = {};
} before;

}  // namespace

Status widen_file_limit() {
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  rlimit limit = {};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || sigaction(SIGXFSZ, &ignore, &before.action) != 0) {
    return Status::from_errno(errno, "the limit of file sizes");
  }
  before.limit = limit;
  before.known = true;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur >= kBytesMin) return {};
  return Status(Code::kResourceExhausted,
                "the hard limit of file sizes (ulimit -f) is " + std::to_string(limit.rlim_max) +
                    " bytes, and gpurun keeps its session in memory files, which count; allow at "
                    "least 128 KiB, or set the soft limit only (ulimit -S -f)");
}

void restore_file_limit() {
  if (!before.known) return;
  setrlimit(RLIMIT_FSIZE, &before.limit);
  sigaction(SIGXFSZ, &before.action, nullptr);
}

}  // namespace gpurun::tools
