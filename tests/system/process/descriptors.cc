// Descriptors: a program closes all of them, as daemons do, and uses the numbers for its own files.
// CUDA calls then fail with one defined error, and gpurun writes no byte into these files.
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

#include "tests/system/process/cases.h"

namespace process_cases {
namespace {

// Descriptors above the standard ones.
std::vector<int> open_descriptors() {
  std::vector<int> found;
  DIR* folder = opendir("/proc/self/fd");
  EXPECT(folder != nullptr);
  while (const dirent* entry = readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    if (fd > 2 && fd != dirfd(folder)) found.push_back(fd);
  }
  closedir(folder);
  return found;
}

// Makes some calls after the loss, so that the sending thread has tried to send. Prints their
// result.
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

// Both ends of a connection. The near one has the number `fd`.
struct Taken {
  int fd;
  int far;
};

}  // namespace

void descriptors_closed() {
  use_device();
  compute(1);
  EXPECT(syscall(SYS_close_range, 3, ~0U, 0) == 0);
  tell_calls();
  tell_calls();
}

// Word: "sockets" or "files", which replace each descriptor.
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
      EXPECT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    } else {
      ends[0] = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
      EXPECT(ends[0] >= 0);
    }
    taken.push_back({fd, ends[1]});
    EXPECT(dup2(ends[0], fd) == fd);  // Atomically closes the old one.
    close(ends[0]);
  }
  tell_calls();
  // Other threads check their connections every second. Anything that they send would arrive at the
  // far ends.
  std::vector<pollfd> far;
  for (const Taken& each : taken)
    far.push_back({each.far, POLLIN, 0});  // -1 for files: not polled.
  EXPECT(poll(far.data(), far.size(), 1'500) == 0);
  tell_calls();
  const pid_t child = fork();
  if (child == 0) {
    for (const Taken& each : taken) EXPECT(is_open(each.fd));  // A child inherits them, too.
    _exit(0);
  }
  say("child: " + end_of(child) + "\n");
  for (const Taken& each : taken) {
    EXPECT(is_open(each.fd));
    if (what == "sockets") {
      int waiting = -1;
      EXPECT(ioctl(each.far, FIONREAD, &waiting) == 0 && waiting == 0);
      // The socket is not shut down, and no other thread takes the program's bytes.
      EXPECT(send(each.far, "abc", 3, MSG_NOSIGNAL) == 3);
      EXPECT(send(each.fd, "def", 3, MSG_NOSIGNAL) == 3);
      char got[4] = "";
      EXPECT(recv(each.fd, got, 4, 0) == 3 && std::string(got, 3) == "abc");
      EXPECT(recv(each.far, got, 4, 0) == 3 && std::string(got, 3) == "def");
    } else {
      struct stat about = {};
      EXPECT(fstat(each.fd, &about) == 0 && about.st_size == 0);
    }
  }
}

// All closed, standard ones too, before the first call. Messages go nowhere, and never into a file
// that the program opens under the number of stderr.
void descriptors_closed_before() {
  const int output = fcntl(STDOUT_FILENO, F_DUPFD, 100);
  EXPECT(output == 100);
  syscall(SYS_close_range, 0, 99, 0);
  syscall(SYS_close_range, 101, ~0U, 0);
  use_device();
  compute(3);
  for (int fd = 0; fd < 3; ++fd) EXPECT(!is_open(fd));
  EXPECT(dup2(output, STDOUT_FILENO) == STDOUT_FILENO);
}

}  // namespace process_cases
