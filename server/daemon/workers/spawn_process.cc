// Processes of gpurund: between fork and exec the child makes only calls that are safe after
// threads.
#include "server/daemon/workers/spawn_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/unique_fd.h"
#include "server/handover/spawn_hand_over.h"
#include "server/handover/worker_exit_codes.h"

namespace gpurun::server {
namespace {

constexpr const char* kForbiddenCall = "a forbidden system call";

// The children of start_process(). Every other child of this process is an orphan.
struct Started {
  std::mutex mutex;
  std::set<pid_t> processes;
};
Started& started() {
  static Started only;
  return only;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& string : strings) result.push_back(string.data());
  result.push_back(nullptr);
  return result;
}

// The RLIMIT_CORE from before keep_memory_private().
std::optional<rlimit>& core_limit() {
  static std::optional<rlimit> before;
  return before;
}

// The file of hold_program().
struct HeldProgram {
  std::string path;
  UniqueFd file;
};
HeldProgram& held_program() {
  static HeldProgram only;
  return only;
}

// Signals that an operator sends to gpurund, and that a service manager sends to all of a unit's
// processes. SIGTERM still ends a worker.
constexpr int kNotForWorkers[] = {SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2};

// In the child: gpurund's ignored and handled signals must not stay so, or be fatal, there.
void reset_signals() {
  for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
  for (const int number : kNotForWorkers) signal(number, SIG_IGN);
}

// In the child.
[[noreturn]] void become(char* const* arguments, char* const* environment, Descriptors& open_there,
                         int program, pid_t parent) {
  std::vector<int>& handed = open_there.handed;
  const int output = open_there.output;
  reset_signals();
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // A worker never outlives its daemon. The daemon may have died before the call.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(125);
  if (core_limit()) setrlimit(RLIMIT_CORE, &*core_limit());
  setsid();  // The terminal's Ctrl-C does not reach it.
  const int null = open("/dev/null", O_RDWR);
  if (null < 0 || dup2(null, 0) < 0 || dup2(output >= 0 ? output : null, 1) < 0) _exit(125);
  if (open_there.errors >= 0 && dup2(open_there.errors, 2) < 0) _exit(125);
  const int end = kHandOverFd + static_cast<int>(handed.size());
  if (program >= 0 && (program = fcntl(program, F_DUPFD_CLOEXEC, end + 1)) < 0) _exit(125);
  for (int& fd : handed) {  // First move them out of each other's way.
    if ((fd = fcntl(fd, F_DUPFD_CLOEXEC, end)) < 0) _exit(125);
  }
  int place = kHandOverFd;
  for (const int fd : handed) {
    if (dup2(fd, place++) < 0) _exit(125);
  }
  if (program >= 0 && dup3(program, end, O_CLOEXEC) < 0) _exit(125);
  // If the kernel is too old for this call, everything is close-on-exec already.
  syscall(SYS_close_range, static_cast<unsigned>(program < 0 ? end : end + 1), ~0U, 0);
  if (program >= 0) syscall(SYS_execveat, end, "", arguments, environment, AT_EMPTY_PATH);
  // A script (tests) cannot be run by its descriptor.
  execve(arguments[0], arguments, environment);
  _exit(127);
}

std::string describe(int status) {
  if (WIFSIGNALED(status)) {
    if (WTERMSIG(status) == SIGSYS) return kForbiddenCall;
    const char* name = strsignal(WTERMSIG(status));
    return "signal " + std::to_string(WTERMSIG(status)) + " (" + (name ? name : "?") + ")";
  }
  const int code = WEXITSTATUS(status);
  if (code == kExitForbiddenCall) return kForbiddenCall;
  if (code == kExitMemoryLimit) return kEndedForMemory;
  return code == 0 ? std::string() : "exit status " + std::to_string(code);
}

}  // namespace

void keep_memory_private() {
#ifndef GPURUN_INJECTED_FAULTS  // A sanitizer examines its own process from outside.
  rlimit core = {};
  if (getrlimit(RLIMIT_CORE, &core) == 0) {
    core_limit() = core;
    core.rlim_cur = 0;
    setrlimit(RLIMIT_CORE, &core);
  }
  prctl(PR_SET_DUMPABLE, 0);
#endif
}

Status hold_program(const std::string& path) {
  UniqueFd file(open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!file.valid()) return Status::from_errno(errno, path);
  held_program() = {path, std::move(file)};
  return {};
}

Result<pid_t> start_process(std::vector<std::string> arguments,
                            std::vector<std::string> environment, Descriptors open_there) {
  const std::vector<char*> argument_pointers = pointers(arguments);
  const std::vector<char*> environment_pointers = pointers(environment);
  const pid_t parent = getpid();
  const HeldProgram& held = held_program();
  const int program = arguments[0] == held.path ? held.file.get() : -1;
  const std::lock_guard lock(started().mutex);
  const pid_t child = fork();
  if (child < 0) {  // EAGAIN: the limit of processes is reached.
    return Status(Code::kResourceExhausted, Status::from_errno(errno, "fork").message());
  }
  if (child == 0) {
    become(argument_pointers.data(), environment_pointers.data(), open_there, program, parent);
  }
  started().processes.insert(child);
  return child;
}

bool is_started(pid_t process) {
  const std::lock_guard lock(started().mutex);
  return started().processes.count(process) != 0;
}

std::string reap(pid_t process) {
  int status = 0;
  pid_t got = 0;
  do {
    got = waitpid(process, &status, 0);
  } while (got < 0 && errno == EINTR);
  const std::lock_guard lock(started().mutex);
  started().processes.erase(process);
  return got == process ? describe(status) : std::string();
}

}  // namespace gpurun::server
