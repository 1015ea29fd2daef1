// Limits of the machine: address space, descriptors, threads, stacks, system calls. The program
// either computes, or gets an error.
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <thread>
#include <vector>

#include "tests/system/process/cases.h"

namespace process_cases {
namespace {

void limit(const std::string& what, const std::string& value) {
  static const std::map<std::string, __rlimit_resource_t> kinds = {
      {"as", RLIMIT_AS},       {"nofile", RLIMIT_NOFILE}, {"nproc", RLIMIT_NPROC},
      {"stack", RLIMIT_STACK}, {"fsize", RLIMIT_FSIZE},   {"memlock", RLIMIT_MEMLOCK},
      {"core", RLIMIT_CORE},   {"data", RLIMIT_DATA}};
  const rlim_t most = std::strtoull(value.c_str(), nullptr, 10);
  const rlimit limits = {most, most};
  EXPECT(setrlimit(kinds.at(what), &limits) == 0);
}

struct Body {
  CUcontext context;
  unsigned char value;
};

void* compute_there(void* argument) {
  const auto* body = static_cast<const Body*>(argument);
  MUST(cuCtxSetCurrent(body->context));
  compute(body->value);
  MUST(cuCtxSynchronize());
  return nullptr;
}

}  // namespace

// Words: pairs of a limit and its value. Prints the result of the first call.
void limited() {
  for (unsigned i = 0; !word(i).empty(); i += 2) limit(word(i), word(i + 1));
  CUcontext context = nullptr;
  int version = 0;
  // The version query always works, because otherwise the driver seems to be too old.
  MUST(cuDriverGetVersion(&version));
  int result = cuInit(0);
  if (result == 0) result = cuDevicePrimaryCtxRetain(&context, 0);
  if (result == 0) result = cuCtxSetCurrent(context);
  if (result == 0) result = try_to_compute(5);
  say(result == 0 ? "computed\n" : "result " + std::to_string(result) + "\n");
}

// As containers treat unwanted calls: "not there", or "not allowed".
void system_calls_refused() {
  const unsigned refusal = word(0) == "EPERM" ? EPERM : ENOSYS;
  constexpr unsigned kRefused[] = {SYS_userfaultfd,
                                   SYS_io_uring_setup,
                                   SYS_io_uring_enter,
                                   SYS_io_uring_register,
                                   SYS_memfd_create,
                                   SYS_clone3,
                                   SYS_pidfd_open,
                                   SYS_pidfd_getfd,
                                   SYS_process_vm_readv,
                                   SYS_perf_event_open,
                                   SYS_bpf,
                                   SYS_membarrier,
                                   SYS_close_range,
                                   SYS_set_mempolicy,
                                   SYS_mbind};
  std::vector<sock_filter> filter = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const unsigned number : kRefused) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1));
    // The C library falls back from clone3 only when it does not exist.
    const unsigned error = number == SYS_clone3 ? ENOSYS : refusal;
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
  EXPECT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  EXPECT(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
  errno = 0;
  EXPECT(syscall(SYS_userfaultfd, 0) == -1 && errno == static_cast<int>(refusal));
  work();
}

// Threads of 64 KiB, one of which makes the very first call.
void small_stacks() {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  EXPECT(pthread_attr_setstacksize(&attributes, std::size_t{64} << 10) == 0);
  pthread_t thread;
  CUcontext context = nullptr;
  const auto first = [](void* into) -> void* {
    *static_cast<CUcontext*>(into) = use_device();
    static_cast<void>(nothing_kernel());
    return nullptr;
  };
  EXPECT(pthread_create(&thread, &attributes, first, &context) == 0);
  pthread_join(thread, nullptr);
  std::vector<pthread_t> threads(8);
  std::vector<Body> bodies(threads.size());
  for (std::size_t i = 0; i < threads.size(); ++i) {
    bodies[i] = {context, static_cast<unsigned char>(i)};
    EXPECT(pthread_create(&threads[i], &attributes, compute_there, &bodies[i]) == 0);
  }
  for (const pthread_t each : threads) pthread_join(each, nullptr);
}

namespace {

// Lines of /proc/self/status, in kB or pieces.
long status(const std::string& name) {
  std::FILE* file = std::fopen("/proc/self/status", "r");
  EXPECT(file != nullptr);
  char line[256];
  long value = -1;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::string(line).rfind(name + ":", 0) == 0) value = std::atol(line + name.size() + 1);
  }
  std::fclose(file);
  return value;
}

}  // namespace

// Short-lived threads, each with its own default stream. Prints the process's resources after each
// round of threads, and waits for a line, so that the test can inspect the worker. The line "end"
// ends the rounds. Words: threads in each round, and how many live at once (4).
void many_threads() {
  const CUcontext context = use_device();
  const int count = std::atoi(word(0).c_str());
  const int at_once = word(1).empty() ? 4 : std::atoi(word(1).c_str());
  char line[8];
  for (int done = 0;;) {
    std::vector<std::thread> threads;
    std::barrier together(at_once);
    for (int i = 0; i < at_once; ++i) {
      threads.emplace_back([&, i] {
        MUST(cuCtxSetCurrent(context));
        CUdeviceptr memory = 0;
        MUST(cuMemAlloc_v2(&memory, 256));
        MUST(cuMemsetD8Async_ptsz(memory, static_cast<unsigned char>(i), 256, nullptr));
        MUST(cuStreamSynchronize_ptsz(nullptr));
        together.arrive_and_wait();
        MUST(cuMemFree_v2(memory));
      });
    }
    for (std::thread& each : threads) each.join();
    done += at_once;
    if (done % count == 0) {
      say(std::to_string(status("Threads")) + "\n");
      EXPECT(read(STDIN_FILENO, line, sizeof line) > 0);
      if (line[0] == 'e') return;
    }
  }
}

}  // namespace process_cases
