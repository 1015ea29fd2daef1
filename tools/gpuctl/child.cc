// Child: reads both outputs until they end, so that neither fills its pipe.
#include "tools/gpuctl/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "base/unique_fd.h"

extern char** environ;

namespace gpurun::tools {
namespace {

constexpr std::chrono::seconds kTermPatience{5};
constexpr std::chrono::seconds kKillPatience{5};

struct Pipe {
  UniqueFd reading, writing;
};

Status open_pipe(Pipe* pipe) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Status::from_errno(errno, "pipe");
  pipe->reading.reset(ends[0]);
  pipe->writing.reset(ends[1]);
  return {};
}

// This process's variables, with those of the options in the place of equal names.
std::vector<std::string> variables_of(const ChildOptions& options) {
  std::vector<std::string> all = options.environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('=') + 1);
    const bool replaced = std::any_of(
        options.environment.begin(), options.environment.end(),
        [&](const std::string& each) { return each.compare(0, name.size(), name) == 0; });
    if (!replaced) all.emplace_back(text);
  }
  return all;
}

std::vector<char*> pointers_to(std::vector<std::string>* texts) {
  std::vector<char*> pointers;
  for (std::string& text : *texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// In the child, between fork() and exec().
[[noreturn]] void become(char* const* command, char* const* variables, int output, int errors,
                         pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);
  const int empty = open("/dev/null", O_RDONLY);
  if (empty >= 0) dup2(empty, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(errors, STDERR_FILENO);
  execvpe(command[0], command, variables);
  std::perror(command[0]);
  _exit(127);
}

// One output as it is read.
struct Reading {
  UniqueFd fd;
  std::string* text = nullptr;
  std::string line;  // Without its end yet.

  void take(const char* bytes, std::size_t count, const ChildOptions& options, bool lines) {
    text->append(bytes, count);
    if (text->size() > 2 * kChildTextMax) text->erase(0, text->size() - kChildTextMax);
    if (!lines || options.on_line == nullptr) return;
    line.append(bytes, count);
    for (std::size_t end; (end = line.find('\n')) != std::string::npos; line.erase(0, end + 1)) {
      options.on_line(std::string_view(line).substr(0, end));
    }
    if (line.size() > kChildTextMax) line.clear();
  }
};

// False at the deadline.
bool read_to_end(Reading* readings, const ChildOptions& options, Deadline deadline) {
  while (readings[0].fd.valid() || readings[1].fd.valid()) {
    pollfd ready[2] = {{readings[0].fd.get(), POLLIN, 0}, {readings[1].fd.get(), POLLIN, 0}};
    const int count = poll(ready, 2, deadline.poll_timeout_ms());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 || (count == 0 && deadline.passed())) return false;
    for (int i = 0; i < 2; ++i) {
      if ((ready[i].revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
      char piece[4096];
      const ssize_t got = read(readings[i].fd.get(), piece, sizeof piece);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        readings[i].fd.reset();
        continue;
      }
      readings[i].take(piece, static_cast<std::size_t>(got), options, i == 0);
    }
  }
  return true;
}

// False: the child still runs at the deadline. A child may close its outputs long before its end.
bool reap(pid_t child, int* status, Deadline deadline) {
  while (true) {
    const pid_t reaped = waitpid(child, status, WNOHANG);
    if (reaped == child || (reaped < 0 && errno != EINTR)) return true;
    if (deadline.passed()) return false;
    poll(nullptr, 0, 2);
  }
}

}  // namespace

bool ChildEnd::succeeded() const {
  return !timed_out && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

Result<ChildEnd> run_child(const ChildOptions& options) {
  std::vector<std::string> words = options.command;
  std::vector<std::string> variables = variables_of(options);
  const std::vector<char*> command = pointers_to(&words);
  const std::vector<char*> environment = pointers_to(&variables);
  Pipe output, errors;
  GPURUN_RETURN_IF_ERROR(open_pipe(&output));
  GPURUN_RETURN_IF_ERROR(open_pipe(&errors));
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return Status::from_errno(errno, "fork");
  if (child == 0) {
    become(command.data(), environment.data(), output.writing.get(),
           options.joined ? output.writing.get() : errors.writing.get(), parent);
  }
  output.writing.reset();
  errors.writing.reset();
  ChildEnd end;
  Reading readings[2] = {{std::move(output.reading), &end.output, {}},
                         {std::move(errors.reading), &end.errors, {}}};
  end.timed_out = !read_to_end(readings, options, options.deadline);
  if (!end.timed_out) end.timed_out = !reap(child, &end.status, options.deadline);
  if (end.timed_out) {
    kill(child, SIGTERM);
    const Deadline patience = Deadline::in(kTermPatience);
    static_cast<void>(read_to_end(readings, options, patience));
    if (!reap(child, &end.status, patience)) {
      kill(child, SIGKILL);
      // A child in an uninterruptible call of a driver ends with that call. It stays a zombie then.
      static_cast<void>(reap(child, &end.status, Deadline::in(kKillPatience)));
    }
  }
  for (std::string* text : {&end.output, &end.errors}) {
    if (text->size() > kChildTextMax) text->erase(0, text->size() - kChildTextMax);
  }
  return end;
}

}  // namespace gpurun::tools
