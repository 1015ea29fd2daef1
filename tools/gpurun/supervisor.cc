// Supervisor: one loop over signals, children and the control link.
#include "tools/gpurun/supervisor.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tools/gpurun/file_limit.h"

namespace gpurun::tools {
namespace {

constexpr int kPassedOn[] = {SIGHUP,  SIGINT,    SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2,  SIGALRM,
                             SIGCONT, SIGVTALRM, SIGPROF, SIGIO,   SIGPWR,  SIGWINCH, SIGTSTP};

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : kPassedOn) sigaddset(&set, number);
  for (int number = SIGRTMIN; number <= SIGRTMAX; ++number) sigaddset(&set, number);
  sigaddset(&set, SIGCHLD);
  return set;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& string : strings) result.push_back(string.data());
  result.push_back(nullptr);
  return result;
}

// The parent of a process, or -1 when the process is gone.
pid_t parent_of(const char* process) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%.20s/stat", process);
  const UniqueFd fd(open(path, O_RDONLY | O_CLOEXEC));
  char text[512];
  const ssize_t bytes = fd.valid() ? read(fd.get(), text, sizeof text - 1) : -1;
  if (bytes <= 0) return -1;
  text[bytes] = '\0';
  // "pid (name) state ppid ...". The name may have any characters, also a bracket.
  const char* after_name = std::strrchr(text, ')');
  if (after_name == nullptr || std::strlen(after_name) < 5) return -1;
  return static_cast<pid_t>(std::strtol(after_name + 4, nullptr, 10));
}

// True when this process has a child besides `except`. Without /proc it counts as having none.
bool has_other_children(pid_t except) {
  DIR* folder = opendir("/proc");
  if (folder == nullptr) return false;
  bool found = false;
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    if (std::strtol(entry->d_name, nullptr, 10) == except) continue;
    if (parent_of(entry->d_name) == getpid()) {
      found = true;
      break;
    }
  }
  closedir(folder);
  return found;
}

// True when a child that has not been waited for has ended.
bool has_ended(pid_t child) {
  siginfo_t ended = {};
  return waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         ended.si_pid == child;
}

bool has_stopped(pid_t child) {
  siginfo_t stopped = {};
  return waitid(P_PID, static_cast<id_t>(child), &stopped, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
         stopped.si_pid == child;
}

// Does what SIGTSTP does by default: stops us, but not in an orphaned process group, where nothing
// could continue us. SIGSTOP would stop us even there. The program stops first: a shell that sees
// us stopped takes the terminal, and the program must not still read there.
void stop_after(pid_t program) {
  constexpr timespec kCatchesIt = {0, 100'000'000};  // If it does not stop.
  sigset_t child, stop, before;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  if (!has_stopped(program)) sigtimedwait(&child, nullptr, &kCatchesIt);
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  raise(SIGTSTP);
  sigprocmask(SIG_UNBLOCK, &stop, &before);
  sigprocmask(SIG_SETMASK, &before, nullptr);
}

bool asks_to_end(unsigned number) {
  return number == SIGHUP || number == SIGINT || number == SIGQUIT || number == SIGTERM;
}

}  // namespace

Result<std::unique_ptr<Supervisor>> Supervisor::create() {
  std::unique_ptr<Supervisor> supervisor(new Supervisor);
  // Our starter may ignore SIGCHLD, and then children could not be waited for.
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &action, &supervisor->child_action_before_);
  const sigset_t set = watched_signals();
  sigset_t blocked = set;
  sigaddset(&blocked, SIGPIPE);  // The reader of our messages may be gone.
  sigprocmask(SIG_BLOCK, &blocked, &supervisor->mask_before_);
  supervisor->signals_.reset(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!supervisor->signals_.valid()) return Status::from_errno(errno, "signalfd");
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  return supervisor;
}

Status Supervisor::start(Program program) {
  std::vector<char*> arguments = pointers(program.command);
  std::vector<std::string> script = program.command;
  // As execvp(3) does with a file that the kernel does not know: a script without a first line.
  script.insert(script.begin(), "/bin/sh");
  script[1] = program.path;
  std::vector<char*> script_arguments = pointers(script);
  std::vector<char*> environment = pointers(program.environment);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Status::from_errno(errno, "pipe");
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  const pid_t parent = getpid();
  program_ = fork();
  if (program_ < 0) return Status::from_errno(errno, "fork");
  if (program_ == 0) {
    // Without us it would lose its GPU, and nothing would forward signals to it.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(125);
    sigaction(SIGCHLD, &child_action_before_, nullptr);
    restore_file_limit();
    sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
    execve(program.path.c_str(), arguments.data(), environment.data());
    if (errno == ENOEXEC) execve("/bin/sh", script_arguments.data(), environment.data());
    const int error = errno;
    static_cast<void>(!write(writing.get(), &error, sizeof error));
    _exit(127);
  }
  writing.reset();
  int error = 0;
  ssize_t got = 0;
  do {
    got = read(reading.get(), &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  if (got == 0) return {};
  while (waitpid(program_, nullptr, 0) < 0 && errno == EINTR) {
  }
  program_ended_ = true;
  if (error == ENOENT) {
    return Status(Code::kUnavailable, program.path + ": its interpreter or loader is missing");
  }
  return Status(Code::kRefused, program.path + ": " + std::strerror(error));
}

// True when no process of the program is left.
bool Supervisor::reap(const Events& events) {
  while (true) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, WNOHANG);
    if (ended < 0 && errno == EINTR) continue;
    if (ended <= 0) break;
    if (ended == program_) {
      program_ended_ = true;
      status_ = status;
    } else if (ended == events.server) {
      events.on_server_end(status);
    }
  }
  return program_ended_ && !has_other_children(events.server);
}

void Supervisor::pass_on() {
  signalfd_siginfo signal = {};
  while (read(signals_.get(), &signal, sizeof signal) == sizeof signal) {
    const int number = static_cast<int>(signal.ssi_signo);
    if (number == SIGCHLD) continue;
    // A signal for a process that has just ended would be lost.
    if (program_ended_ || has_ended(program_)) {
      told_to_end_ |= asks_to_end(signal.ssi_signo);
      continue;
    }
    // The terminal signals the whole process group, and so does a program that signals its own
    // group.
    const bool has_it =
        signal.ssi_code == SI_KERNEL || static_cast<pid_t>(signal.ssi_pid) == program_;
    if (!has_it) kill(program_, number);
    if (number == SIGTSTP) stop_after(program_);
  }
}

Result<int> Supervisor::wait(const Events& events) {
  int link_fd = events.link_fd;
  bool left_behind = false;
  while (true) {
    if (reap(events) || told_to_end_) return status_;
    if (program_ended_ && !std::exchange(left_behind, true)) events.on_left_behind();
    pollfd waited[] = {{signals_.get(), POLLIN, 0}, {link_fd, POLLIN, 0}};
    const int patience_ms = events.on_tick ? events.on_tick() : -1;
    if (poll(waited, 2, patience_ms) < 0 && errno != EINTR)
      return Status::from_errno(errno, "poll");
    if (waited[0].revents != 0) pass_on();
    if (waited[1].revents != 0) {
      if (!events.on_link()) link_fd = -1;
    }
  }
}

void end_like(int wait_status) {
  if (!WIFSIGNALED(wait_status)) _exit(WEXITSTATUS(wait_status));
  const int number = WTERMSIG(wait_status);
  // One core file is enough.
  const rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  signal(number, SIG_DFL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
  raise(number);
  _exit(128 + number);  // A signal that does not kill us could not have killed the program.
}

}  // namespace gpurun::tools
