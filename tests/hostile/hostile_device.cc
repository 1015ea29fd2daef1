// Hostile device: a driver library that behaves like a stranger's native code. It is the null
// device, except that cuCtxGetLimit(action) does the action and returns its outcome.
// cuCtxSetLimit(kArgument, n) sets the action's target or amount. An outcome of 0 means that the
// action succeeded. Otherwise it is errno, or a count if the action says so. The library passes for
// the emulated device unless GPURUN_EMULATED is "other", so the strict list of system calls applies
// to it.
#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>

#include "driver_abi/cuda_abi.h"
#include "driver_abi/emulated_view.h"
#include "tests/hostile/malicious_actions.h"

namespace {

constexpr timespec kHour = {3600, 0};
std::size_t g_argument = 0;  // A process, a port, or a number of MiB.

std::size_t outcome(long result) { return result < 0 ? static_cast<std::size_t>(errno) : 0; }
pid_t victim() { return static_cast<pid_t>(g_argument); }
std::string of_victim(const char* file) {
  return "/proc/" + std::to_string(g_argument) + "/" + file;
}

// A private file of the daemon's user: the secret in the folder TMPDIR.
std::size_t read_secret() {
  return outcome(open((std::string(getenv("TMPDIR")) + "/secret").c_str(), O_RDONLY));
}
std::size_t read_any_file() { return outcome(open("/etc/passwd", O_RDONLY)); }
std::size_t list_root() { return opendir("/") != nullptr ? 0 : static_cast<std::size_t>(errno); }
std::size_t write_shared_memory() {
  // A name that other tests do not take for a leftover of gpurun.
  const std::string path = "/dev/shm/hostile-device-" + std::to_string(g_argument);
  const int file = open(path.c_str(), O_CREAT | O_WRONLY, 0600);
  if (file >= 0) unlink(path.c_str());
  return outcome(file);
}
std::size_t read_environ() { return outcome(open(of_victim("environ").c_str(), O_RDONLY)); }
std::size_t open_memory() { return outcome(open(of_victim("mem").c_str(), O_RDWR)); }

std::size_t reach_network() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0) return outcome(fd);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(g_argument));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return outcome(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address));
}

std::size_t trace_other() { return outcome(ptrace(PTRACE_ATTACH, victim(), nullptr, nullptr)); }
std::size_t signal_other() { return outcome(kill(victim(), 0)); }
std::size_t kill_other() { return outcome(kill(victim(), SIGKILL)); }
std::size_t signal_thread_of_other() { return outcome(syscall(SYS_tgkill, victim(), victim(), 0)); }
std::size_t read_memory_of_other() {
  char byte = 0;
  iovec here = {&byte, 1};
  iovec there = {reinterpret_cast<void*>(&outcome), 1};  // Any address: EFAULT is a valid outcome
                                                         // too.
  const ssize_t got = process_vm_readv(victim(), &here, 1, &there, 1, 0);
  return got < 0 && errno == EFAULT ? 0 : outcome(got);
}
std::size_t limit_other() {
  rlimit limit = {64, 64};
  return outcome(prlimit(victim(), RLIMIT_NOFILE, &limit, nullptr));
}
std::size_t slow_other() {
  return outcome(setpriority(PRIO_PROCESS, static_cast<id_t>(victim()), 19));
}
// The kernel sends signals for a descriptor to the process that its owner names.
std::size_t signal_by_descriptor() {
  int ends[2];
  if (pipe(ends) != 0) return outcome(-1);
  return outcome(fcntl(ends[0], F_SETOWN, victim()));
}

// Closing a lingering socket blocks. Here the daemon would close it, because workers send
// descriptors to it.
std::size_t hold_up_a_close() {
  int type = 0;
  socklen_t length = sizeof type;
  int found = 0;
  while (found < 1024 && getsockopt(found, SOL_SOCKET, SO_TYPE, &type, &length) != 0) ++found;
  const linger hour = {1, 3600};
  return outcome(setsockopt(found, SOL_SOCKET, SO_LINGER, &hour, sizeof hour));
}

std::size_t start_child() {
  const pid_t child = fork();
  if (child == 0) {  // A child that would outlive this worker.
    setsid();
    sleep(static_cast<unsigned>(g_argument));
    _exit(0);
  }
  return outcome(child);
}
std::size_t start_program() {
  char name[] = "true";
  char* words[] = {name, nullptr};
  pid_t child = 0;
  return static_cast<std::size_t>(
      posix_spawn(&child, "/bin/true", nullptr, nullptr, words, nullptr));
}
std::size_t become_root() { return outcome(setuid(0)); }
std::size_t make_namespace() { return outcome(unshare(CLONE_NEWUSER | CLONE_NEWNET)); }
std::size_t make_ring() {
  char parameters[256] = {};
  return outcome(syscall(SYS_io_uring_setup, 4, parameters));
}
// With its own handler the worker would live on. The call is not done in either case.
std::size_t catch_the_signal() { return outcome(signal(SIGSYS, SIG_IGN) == SIG_ERR ? -1 : 0); }
std::size_t other_machine() {
#if defined(__x86_64__)
  long result = 20;  // getpid() of i386.
  asm volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
  return result > 0 ? 0 : static_cast<std::size_t>(-result);
#else
  return ENOSYS;
#endif
}

// The number of kill() for x32, an architecture that x86-64 kernels may serve, too.
std::size_t kill_by_x32() {
#if defined(__x86_64__)
  return outcome(syscall(0x40000000 | SYS_kill, victim(), SIGKILL));
#else
  return ENOSYS;
#endif
}
// Its nodes are open to all users, and network namespaces do not confine it.
std::size_t open_rdma_device() { return outcome(open("/dev/infiniband/uverbs0", O_RDWR)); }

// Counts MiB that could be allocated, at most g_argument.
std::size_t take_memory() {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  for (std::size_t taken = 0; taken < g_argument; taken += 16) {
    void* place =
        mmap(nullptr, 16 * kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED) return taken;
    std::memset(place, 1, 4096);
  }
  return g_argument;
}
std::size_t allocate() {
  for (std::size_t taken = 0; taken < g_argument; taken += 16) {
    char* volatile kept = new char[std::size_t{16} << 20];
    kept[0] = 1;
  }
  return g_argument;
}
// Counts threads that could be started, at most g_argument.
std::size_t start_threads() {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 16384);
  for (std::size_t count = 0; count < g_argument; ++count) {
    pthread_t thread;
    const auto body = [](void*) -> void* {
      for (;;) syscall(SYS_nanosleep, &kHour, nullptr);
    };
    if (pthread_create(&thread, &attributes, body, nullptr) != 0) return count;
  }
  return g_argument;
}
// Counts descriptors that could be opened, at most g_argument.
std::size_t take_descriptors() {
  for (std::size_t count = 0; count < g_argument; ++count) {
    if (dup(STDERR_FILENO) < 0) return count;
  }
  return g_argument;
}
// Counts inherited descriptors that reach something outside.
std::size_t use_inherited() {
  std::size_t count = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    struct stat about;
    if (fstat(fd, &about) != 0) continue;
    const bool named_file = S_ISREG(about.st_mode) && about.st_nlink > 0;
    const bool null = S_ISCHR(about.st_mode) && about.st_rdev == makedev(1, 3);
    if (S_ISDIR(about.st_mode) || named_file || S_ISBLK(about.st_mode) ||
        (S_ISCHR(about.st_mode) && !null)) {
      ++count;
    }
  }
  return count;
}
std::size_t flood_the_log() {
  const std::string line = std::string(1023, 'x') + "\n\x1b[2J\u009b2Jforged\n";
  for (std::size_t written = 0; written < g_argument << 20; written += line.size()) {
    if (write(STDERR_FILENO, line.data(), line.size()) < 0) return static_cast<std::size_t>(errno);
  }
  return 0;
}

// In the order of kActions.
constexpr std::size_t (*kFunctions[])() = {read_secret,
                                           read_any_file,
                                           list_root,
                                           write_shared_memory,
                                           read_environ,
                                           open_memory,
                                           reach_network,
                                           trace_other,
                                           signal_other,
                                           kill_other,
                                           signal_thread_of_other,
                                           read_memory_of_other,
                                           limit_other,
                                           signal_by_descriptor,
                                           start_child,
                                           start_program,
                                           become_root,
                                           make_namespace,
                                           make_ring,
                                           catch_the_signal,
                                           other_machine,
                                           take_memory,
                                           allocate,
                                           start_threads,
                                           take_descriptors,
                                           use_inherited,
                                           flood_the_log,
                                           hold_up_a_close,
                                           kill_by_x32,
                                           open_rdma_device,
                                           slow_other};
static_assert(std::size(kFunctions) == std::size(gpurun::hostile::kActions));

const gpurun::driver_abi::EmulatedView& emulated_view() {
  static constexpr gpurun::driver_abi::EmulatedView kView = {
      sizeof(gpurun::driver_abi::EmulatedView),
      [] { return 0; },
      [](int) { return std::uint64_t{0}; },
      nullptr,
      nullptr,
      nullptr,
      [](std::uint16_t) { return true; },
      nullptr};
  return kView;
}

}  // namespace

extern "C" {

#define EXPORTED __attribute__((visibility("default")))

EXPORTED CUresult cuGetExportTable(const void** table, const CUuuid* id) {
  const char* device = getenv("GPURUN_EMULATED");
  const bool emulated = device == nullptr || std::strcmp(device, "other") != 0;
  if (emulated && std::memcmp(id, gpurun::driver_abi::kEmulatedMarker.data(), sizeof *id) == 0) {
    *table = &emulated_view();
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

// Two devices, so that an honest program gets one. A lease's worker sees only its own.
EXPORTED CUresult cuDeviceGetCount(int* count) {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  *count = visible == nullptr || std::strchr(visible, ',') != nullptr ? 2 : 1;
  return CUDA_SUCCESS;
}
EXPORTED CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = 0;
  return ordinal == 0 || ordinal == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORTED CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  if (static_cast<int>(limit) == gpurun::hostile::kArgument) g_argument = value;
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuCtxGetLimit(size_t* value, CUlimit limit) {
  const int action = static_cast<int>(limit) - gpurun::hostile::kFirstAction;
  if (action < 0 || action >= static_cast<int>(std::size(kFunctions)))
    return CUDA_ERROR_INVALID_VALUE;
  *value = kFunctions[action]();
  return CUDA_SUCCESS;
}

}  // extern "C"
