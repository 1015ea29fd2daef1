// PrivateServer: the secret goes through one pipe, and the address comes back through another. The
// server inherits nothing else, except stderr.
#include "tools/gpurun/private_server.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/unique_fd.h"
#include "protocol/auth/run_secret.h"

namespace gpurun::tools {
namespace {

constexpr int kSecretFd = 3;
constexpr int kReadyFd = 4;
constexpr int kEndMilliseconds = 5000;

struct Pipe {
  UniqueFd reading, writing;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Status::from_errno(errno, "pipe");
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// In the child: only calls that are safe after fork().
[[noreturn]] void become(char* const* arguments, char* const* environment, int secret, int ready,
                         pid_t parent) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int number : {SIGHUP, SIGINT, SIGTERM, SIGCHLD, SIGPIPE}) signal(number, SIG_DFL);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(125);  // The parent has died before the call.
  setsid();
  // Above their final numbers, so that neither overwrites the other.
  secret = fcntl(secret, F_DUPFD, kReadyFd + 1);
  ready = fcntl(ready, F_DUPFD, kReadyFd + 1);
  const int null = open("/dev/null", O_RDWR);
  if (secret < 0 || ready < 0 || null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 ||
      // When our starter closed stderr, it is also closed for the server.
      ((fcntl(2, F_GETFD) & FD_CLOEXEC) != 0 && dup2(null, 2) < 0) || dup2(secret, kSecretFd) < 0 ||
      dup2(ready, kReadyFd) < 0) {
    _exit(125);
  }
  if (syscall(SYS_close_range, kReadyFd + 1, ~0U, 0) != 0) {
    // Before Linux 5.9. A descriptor without close-on-exec that the user left open has a low
    // number.
    for (int fd = kReadyFd + 1; fd < 1024; ++fd) close(fd);
  }
  // So that it does not keep the user's folder busy.
  if (chdir("/") != 0) _exit(125);
  execve(arguments[0], arguments, environment);
  _exit(127);
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& string : strings) result.push_back(string.data());
  result.push_back(nullptr);
  return result;
}

// Reads one line, or everything until the other end closes.
Result<std::string> read_line(int fd, Deadline deadline) {
  std::string line;
  while (line.size() < 512) {
    pollfd ready = {fd, POLLIN, 0};
    const int count = poll(&ready, 1, deadline.poll_timeout_ms());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Status::from_errno(errno, "poll");
    if (count == 0 && !deadline.passed()) continue;
    if (count == 0) return Status(Code::kDeadline, "the private server does not start");
    char byte = 0;
    const ssize_t got = read(fd, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0 || byte == '\n') break;
    line += byte;
  }
  return line;
}

std::string absolute(const std::string& path) {
  char real[PATH_MAX];
  return realpath(path.c_str(), real) != nullptr ? real : path;
}

}  // namespace

PrivateServer::PrivateServer(pid_t process, Bytes secret)
    : process_(process), secret_(std::move(secret)) {}

Result<std::unique_ptr<PrivateServer>> PrivateServer::start(const Places& places, Device device,
                                                            const Environment& user,
                                                            Deadline deadline) {
  if (access(places.daemon.c_str(), X_OK) != 0) {
    return Status(Code::kUnavailable,
                  places.daemon +
                      " is missing, so there is no private server; install gpurun's "
                      "server part, or name a server with -l");
  }
  Result<Bytes> secret = protocol::make_secret();
  if (!secret.ok()) return secret.status();
  Result<Pipe> secret_pipe = make_pipe();
  if (!secret_pipe.ok()) return secret_pipe.status();
  Result<Pipe> ready_pipe = make_pipe();
  if (!ready_pipe.ok()) return ready_pipe.status();
  if (device == Device::kAutomatic) {
    device = has_nvidia_device() ? Device::kReal : Device::kEmulated;
  }
  const std::string_view own_driver = value_of(user, kDriverVariable);
  const std::string word = device == Device::kReal ? "real" : "emulated";
  const std::string driver = own_driver.empty() ? word : absolute(std::string(own_driver));

  std::vector<std::string> arguments = {
      places.daemon, "--listen", "127.0.0.1:0", "--driver", driver, "--secret-fd",
      std::to_string(kSecretFd), "--ready-fd", std::to_string(kReadyFd),
      // It serves only its own user, and uses that user's caches. An image from this machine needs
      // no copy on its disk.
      "--worker-uids", "none", "--confinement", "none", "--cache", "none",
      // The user of the run is known.
      "--tokens", "none", "--audit", "none",
      // gpurun reports deaths to its user.
      "--for-one-run"};
  std::vector<std::string> environment = server_environment(user, places);
  const std::vector<char*> argument_pointers = pointers(arguments);
  const std::vector<char*> environment_pointers = pointers(environment);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return Status::from_errno(errno, "fork");
  if (child == 0) {
    become(argument_pointers.data(), environment_pointers.data(), secret_pipe->reading.get(),
           ready_pipe->writing.get(), parent);
  }
  std::unique_ptr<PrivateServer> server(new PrivateServer(child, *std::move(secret)));
  server->is_emulated_ = own_driver.empty() && device == Device::kEmulated;
  server->device_name_ = !own_driver.empty()       ? driver
                         : device == Device::kReal ? "this machine's GPU"
                                                   : "emulated device";
  ready_pipe->writing.reset();
  secret_pipe->reading.reset();
  // A pipe holds 4 KiB without a reader. SIGPIPE comes when the server is dead already.
  void (*const kept)(int) = signal(SIGPIPE, SIG_IGN);
  const ssize_t written =
      write(secret_pipe->writing.get(), server->secret_.data(), server->secret_.size());
  signal(SIGPIPE, kept);
  secret_pipe->writing.reset();
  Result<std::string> line = read_line(ready_pipe->reading.get(), deadline);
  if (!line.ok()) return line.status();
  if (written != static_cast<ssize_t>(server->secret_.size()) || line->empty()) {
    return Status(
        Code::kUnavailable,
        "the private server did not start (" + places.daemon + ")" +
            (device == Device::kReal && own_driver.empty()
                 ? "; if NVIDIA's driver is not installed here, use --device emulated, or "
                   "name a server with -l"
                 : ""));
  }
  server->address_ = *std::move(line);
  return server;
}

PrivateServer::~PrivateServer() {
  if (process_ <= 0) return;
  const UniqueFd exit(static_cast<int>(syscall(SYS_pidfd_open, process_, 0)));
  kill(process_, SIGTERM);
  pollfd ended = {exit.get(), POLLIN, 0};
  if (!exit.valid() || poll(&ended, 1, kEndMilliseconds) <= 0) kill(process_, SIGKILL);
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace gpurun::tools
