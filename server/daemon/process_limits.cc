// Process limits: a limit that cannot be raised stays as it is, because the system refuses the
// call.
#include "server/daemon/process_limits.h"

#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <string>

#include "base/thread_stacks.h"

namespace gpurun::server {
namespace {

constexpr __rlimit_resource kLimits[] = {RLIMIT_NOFILE,  RLIMIT_AS,    RLIMIT_DATA,  RLIMIT_RSS,
                                         RLIMIT_MEMLOCK, RLIMIT_NPROC, RLIMIT_FSIZE, RLIMIT_CPU};
// The system does not allow an infinite number of descriptors.
constexpr rlim_t kDescriptors = 524'288;
// For the daemon itself, one lease and the start of its worker.
constexpr rlim_t kDescriptorsMin = 24;

void raise(__rlimit_resource which) {
  rlimit limit = {};
  if (getrlimit(which, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(which, &limit);
}

// A stack without a limit would change where the system maps memory.
void raise_stack() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kOrdinaryStackBytes) return;
  limit.rlim_cur = kOrdinaryStackBytes;
  const rlimit whole = {limit.rlim_cur, std::max<rlim_t>(limit.rlim_max, kOrdinaryStackBytes)};
  if (setrlimit(RLIMIT_STACK, &whole) == 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_STACK, &limit);
}

}  // namespace

void raise_limits() {
  signal(SIGXFSZ, SIG_IGN);
  for (const __rlimit_resource which : kLimits) raise(which);
  raise_stack();
}

void lift_limits() {
  for (const __rlimit_resource which : kLimits) {
    rlimit limit = {};
    if (getrlimit(which, &limit) != 0) continue;
    const rlim_t most =
        which == RLIMIT_NOFILE ? std::max(limit.rlim_max, kDescriptors) : RLIM_INFINITY;
    limit = {most, most};
    setrlimit(which, &limit);
  }
}

Status check_limits() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kDescriptorsMin) return {};
  return Status(Code::kResourceExhausted,
                "the hard limit of descriptors (ulimit -n) is " + std::to_string(limit.rlim_max) +
                    ", and a server needs at least " + std::to_string(kDescriptorsMin));
}

}  // namespace gpurun::server
