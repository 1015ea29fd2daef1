// become_user(): the order of the calls that give up groups, user and capabilities permanently.
#include "server/worker/sandbox/worker_user.h"

#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <string>

namespace gpurun::server {

Status become_user(uid_t user) {
  const pid_t parent = getppid();
  const auto failed = [user](const char* what) {
    return Status(Code::kRefused, "becoming user " + std::to_string(user) + ": " + what + ": " +
                                      Status::from_errno(errno, "").message());
  };
  if (setgroups(0, nullptr) != 0) return failed("setgroups");
  if (setresgid(user, user, user) != 0) return failed("setresgid");
  if (setresuid(user, user, user) != 0) return failed("setresuid");
  if (setuid(0) == 0) return Status(Code::kInternal, "a worker could become root again");
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return failed("PR_SET_NO_NEW_PRIVS");
  const rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  // The change removed our access to our own files in /proc. Drivers look up their own mappings
  // there.
  prctl(PR_SET_DUMPABLE, 1);
  // The change also cleared this (prctl(2)). Our daemon may have died in between.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(125);
  return Status();
}

}  // namespace gpurun::server
