// A program that closes all descriptors, as daemons do, and takes the numbers for its own files:
// CUDA calls fail with one defined error, and not one byte that is not the program's gets into
// them.
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "tests/process/cases.h"

namespace process_cases {
namespace {

// Those above the standard ones.
std::vector<int> open_descriptors() {
  std::vector<int> found;
  DIR* folder = opendir("/proc/self/fd");
  HOLDS(folder != nullptr);
  while (const dirent* entry = readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    if (fd > 2 && fd != dirfd(folder)) found.push_back(fd);
  }
  closedir(folder);
  return found;
}

// What the calls after the loss come to: some, so that whoever sends beside us has sent.
void tell_calls() {
  CUdeviceptr memory = 0;
  for (int i = 0; i < 20; ++i) {
    static_cast<void>(cuMemAlloc_v2(&memory, 1 << 20));
    static_cast<void>(cuMemsetD8Async(memory, 1, 16, nullptr));
  }
  const int waited = cuCtxSynchronize();
  const int made = cuMemAlloc_v2(&memory, 16);
  say("cuCtxSynchronize " + std::to_string(waited) + ", cuMemAlloc " + std::to_string(made) +
      ", cuInit " + std::to_string(cuInit(0)) + "\n");
}

bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

// Both ends of a connection; the near one in the place of `fd`.
struct Taken {
  int fd;
  int far;
};

}  // namespace

void descriptors_closed() {
  use_device();
  compute(1);
  HOLDS(syscall(SYS_close_range, 3, ~0U, 0) == 0);
  tell_calls();
  tell_calls();
}

// Word: "sockets" or "files": what stands under each number afterwards.
void descriptors_reused() {
  const std::string what = word(0);
  use_device();
  compute(1);
  const std::vector<int> before = open_descriptors();
  say(before.empty() ? "no descriptor\n" : "descriptors there were\n");
  std::vector<Taken> taken;
  for (const int fd : before) {
    int ends[2] = {-1, -1};
    if (what == "sockets") {
      HOLDS(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    } else {
      ends[0] = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
      HOLDS(ends[0] >= 0);
    }
    taken.push_back({fd, ends[1]});
    HOLDS(dup2(ends[0], fd) == fd);  // Closes the old one at the same moment.
    close(ends[0]);
  }
  tell_calls();
  // Other threads look at their connections each second: what they did would come to the far ends.
  std::vector<pollfd> far;
  for (const Taken& each : taken)
    far.push_back({each.far, POLLIN, 0});  // Of files -1: not looked at.
  HOLDS(poll(far.data(), far.size(), 1'500) == 0);
  tell_calls();
  const pid_t child = fork();
  if (child == 0) {
    for (const Taken& each : taken) HOLDS(is_open(each.fd));  // A child inherits them, too.
    _exit(0);
  }
  say("child: " + end_of(child) + "\n");
  for (const Taken& each : taken) {
    HOLDS(is_open(each.fd));
    if (what == "sockets") {
      int waiting = -1;
      HOLDS(ioctl(each.far, FIONREAD, &waiting) == 0 && waiting == 0);
      // Not shut down either, and what comes for the program is not taken by somebody else.
      HOLDS(send(each.far, "abc", 3, MSG_NOSIGNAL) == 3);
      HOLDS(send(each.fd, "def", 3, MSG_NOSIGNAL) == 3);
      char got[4] = "";
      HOLDS(recv(each.fd, got, 4, 0) == 3 && std::string(got, 3) == "abc");
      HOLDS(recv(each.far, got, 4, 0) == 3 && std::string(got, 3) == "def");
    } else {
      struct stat about = {};
      HOLDS(fstat(each.fd, &about) == 0 && about.st_size == 0);
    }
  }
}

// All closed, standard ones too, before the first call: messages go nowhere, and not into a file
// that the program opens under the number of stderr.
void descriptors_closed_before() {
  const int output = fcntl(STDOUT_FILENO, F_DUPFD, 100);
  HOLDS(output == 100);
  syscall(SYS_close_range, 0, 99, 0);
  syscall(SYS_close_range, 101, ~0U, 0);
  use_device();
  compute(3);
  for (int fd = 0; fd < 3; ++fd) HOLDS(!is_open(fd));
  HOLDS(dup2(output, STDOUT_FILENO) == STDOUT_FILENO);
}

}  // namespace process_cases
