// run_child(): a fork, a pipe and a deadline.
#include "child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>

namespace gpurun::probe {
namespace {

[[noreturn]] void be_child(int fd, const std::function<int(int)>& work) {
  setpgid(0, 0);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  std::_Exit(work(fd));  // Without the driver's exit handlers: all results are written already.
}

}  // namespace

ChildResult run_child(int seconds_max, const std::function<int(int fd)>& work) {
  using Clock = std::chrono::steady_clock;
  ChildResult result;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    result.exit_code = 125;
    return result;
  }
  std::fflush(nullptr);
  const auto start = Clock::now();
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    be_child(ends[1], work);
  }
  close(ends[1]);
  const auto end = start + std::chrono::seconds(seconds_max);
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd readable{ends[0], POLLIN, 0};
    const int ready = left <= 0 ? 0 : poll(&readable, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      result.timed_out = true;
      kill(-child, SIGKILL);
      kill(child, SIGKILL);
      break;
    }
    char buffer[4096];
    const ssize_t count = read(ends[0], buffer, sizeof buffer);
    if (count <= 0) break;
    result.output.append(buffer, static_cast<std::size_t>(count));
  }
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  kill(-child, SIGKILL);  // Its descendants.
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (WIFSIGNALED(status) && !result.timed_out) result.signal = WTERMSIG(status);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  return result;
}

std::string failure_of(const ChildResult& result) {
  if (result.timed_out)
    return "no answer after " + std::to_string(static_cast<int>(result.seconds)) + " s";
  if (result.signal != 0)
    return "killed by signal " + std::to_string(result.signal) + " (" + strsignal(result.signal) +
           ")";
  if (result.exit_code == 3) return "the driver could not be opened";
  if (result.exit_code != 0) return "exit code " + std::to_string(result.exit_code);
  return "";
}

}  // namespace gpurun::probe
