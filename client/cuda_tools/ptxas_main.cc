// gpurun-ptxas: runs a tool chain's ptxas as it was called, and adds the PTX to its output, so that
// the emulated device can run it. Everything that ptxas prints, and how it ends, is its own.
//
// usage: gpurun-ptxas PTXAS NAME ARGUMENT... (start.h)
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/log.h"
#include "client/cuda_tools/ptxas_output.h"

extern char** environ;

namespace gpurun::client::cuda_tools {
namespace {

// As a shell's for a command that cannot be run.
constexpr int kCannotRun = 127;

// By the system call, because execve() would start this program again.
[[noreturn]] void become(const char* ptxas, char** arguments) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  syscall(SYS_execve, ptxas, arguments, environ);
  GPURUN_LOG(kError, "%s cannot be run: %s", ptxas, std::strerror(errno));
  _exit(kCannotRun);
}

[[noreturn]] void end_like(int status) {
  if (WIFSIGNALED(status)) {
    signal(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
  }
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : kCannotRun);
}

int run(int count, char** words) {
  if (count < 3) {
    GPURUN_LOG(kError, "gpurun-ptxas is started by gpurun itself, in place of a ptxas");
    return kCannotRun;
  }
  // A parent that ignores SIGCHLD passes that on, and waitpid() would have no status.
  struct sigaction before = {};
  struct sigaction usual = {};
  usual.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &usual, &before);
  const pid_t child = fork();
  if (child < 0) {
    GPURUN_LOG(kError, "ptxas cannot be started: %s", std::strerror(errno));
    return kCannotRun;
  }
  if (child == 0) {
    sigaction(SIGCHLD, &before, nullptr);
    become(words[1], words + 2);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return kCannotRun;
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) end_like(status);
  const std::vector<std::string> arguments(words + 3, words + count);
  const Status added = add_ptx_to_output(parse_ptxas_command(arguments));
  if (!added.ok()) {
    GPURUN_LOG(kWarning, "the emulated device will not run this ptxas's output: %s",
               added.message().c_str());
  }
  return 0;
}

}  // namespace
}  // namespace gpurun::client::cuda_tools

int main(int count, char** words) { return gpurun::client::cuda_tools::run(count, words); }
