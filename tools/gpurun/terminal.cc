// Terminal: signals that would end the process are held until the terminal shows typed text again.
#include "tools/gpurun/terminal.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>

#include "base/unique_fd.h"

namespace gpurun::tools {
namespace {

constexpr std::size_t kLineBytesMax = 4096;

void print(const std::string& text) {
  static_cast<void>(!write(STDERR_FILENO, text.data(), text.size()));
}

// False: the input has ended, or a signal has come. `signals` (or -1) is readable for a signal.
bool read_line(int signals, std::string* line) {
  while (line->size() < kLineBytesMax) {
    pollfd ready[] = {{STDIN_FILENO, POLLIN, 0}, {signals, POLLIN, 0}};
    if (poll(ready, 2, -1) < 0 && errno != EINTR) return false;
    if (ready[1].revents != 0) return false;
    if (ready[0].revents == 0) continue;
    char byte = 0;
    const ssize_t got = read(STDIN_FILENO, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    if (byte == '\n') return true;
    *line += byte;
  }
  return true;
}

}  // namespace

Result<std::string> read_hidden_line(const std::string& prompt) {
  termios shown = {};
  if (tcgetattr(STDIN_FILENO, &shown) != 0) return Status::from_errno(errno, "the terminal");
  sigset_t ending, mask;
  sigemptyset(&ending);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP}) sigaddset(&ending, number);
  sigprocmask(SIG_BLOCK, &ending, &mask);
  const UniqueFd signals(signalfd(-1, &ending, SFD_CLOEXEC));
  termios hidden = shown;
  hidden.c_lflag &= ~static_cast<tcflag_t>(ECHO);
  std::string line;
  bool whole = false;
  if (signals.valid() && tcsetattr(STDIN_FILENO, TCSAFLUSH, &hidden) == 0) {
    print(prompt);  // After the change, which drops what was typed before it.
    whole = read_line(signals.get(), &line);
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &shown);
  }
  print("\n");
  sigprocmask(SIG_SETMASK, &mask, nullptr);  // A held signal acts now.
  if (!whole) return Status(Code::kInvalidArgument, "the terminal gave no line");
  return line;
}

bool says_yes(const std::string& question) {
  print(question + " [yes/no] ");
  std::string line;
  return read_line(-1, &line) && (line == "yes" || line == "y");
}

}  // namespace gpurun::tools
