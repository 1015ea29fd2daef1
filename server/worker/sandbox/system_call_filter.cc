// SystemCallFilter: a list of comparisons in the kernel's filter language (seccomp_data, BPF). The
// kernel caches that a call is always allowed, so the length of the list costs nothing.
#include "server/worker/sandbox/system_call_filter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "server/handover/worker_exit_codes.h"

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41  // Names of mappings; Linux 5.17.
#endif

namespace gpurun::server {
namespace {

#if defined(__aarch64__)
constexpr std::uint32_t kOurMachine = AUDIT_ARCH_AARCH64;
#else
constexpr std::uint32_t kOurMachine = AUDIT_ARCH_X86_64;
#endif

#if defined(__x86_64__)
constexpr std::uint32_t kFirstX32Call = 0x40000000;  // __X32_SYSCALL_BIT of <asm/unistd.h>.
#endif

constexpr std::uint32_t kAllow = SECCOMP_RET_ALLOW;
constexpr std::uint32_t kForbid = SECCOMP_RET_TRAP;
constexpr std::uint32_t fail(int error) {
  return SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error);
}

constexpr std::uint32_t argument(unsigned index, unsigned half = 0) {  // Little-endian machines.
  return static_cast<std::uint32_t>(offsetof(seccomp_data, args) + 8 * index + 4 * half);
}

class Program {
 public:
  Program() {
    load(offsetof(seccomp_data, arch));
    add(kEqual, kOurMachine, 1, 0);
    answer(SECCOMP_RET_KILL_PROCESS);  // Numbers of another machine. Skipped when it is ours.
    load(offsetof(seccomp_data, nr));
#if defined(__x86_64__)
    // x32 has the same machine, other numbers, and mostly the same calls.
    add(BPF_JMP | BPF_JGE | BPF_K, kFirstX32Call, 0, 1);
    answer(kForbid);
#endif
  }

  void always(std::initializer_list<long> calls, std::uint32_t what) {
    for (const long call : calls) begin(call, 1), answer(what);
  }
  // `values` are of the argument's lower half.
  void by_value(long call, unsigned index, std::initializer_list<std::uint32_t> values,
                std::uint32_t then, std::uint32_t otherwise) {
    begin(call, 2 * values.size() + 2);
    load(argument(index));
    for (const std::uint32_t value : values) when_equal(value, 1), answer(then);
    answer(otherwise);
  }
  // Compares the bits of the argument's lower half that `mask` names.
  void by_bits(long call, unsigned index, std::uint32_t mask, std::uint32_t bits,
               std::uint32_t then, std::uint32_t otherwise) {
    begin(call, 5);
    load(argument(index));
    add(BPF_ALU | BPF_AND | BPF_K, mask);
    when_equal(bits, 1), answer(then);
    answer(otherwise);
  }
  // Allows setsockopt(2), except SO_LINGER. It checks the level of the option too, because
  // TCP_CONGESTION has the same number.
  void nothing_lingers(long call) {
    begin(call, 6);
    load(argument(1));
    when_equal(SOL_SOCKET, 3);
    load(argument(2));
    when_equal(SO_LINGER, 1), answer(kForbid);
    answer(kAllow);
  }
  // Allows prlimit64(2) of this process that sets nothing.
  void limits_are_read(long call) {
    begin(call, 11);
    load(argument(0));
    add(kEqual, 0, 2, 0);
    add(kEqual, static_cast<std::uint32_t>(getpid()), 1, 0);
    answer(kForbid);
    load(argument(2));
    add(kEqual, 0, 1, 0);
    answer(kForbid);
    load(argument(2, 1));
    add(kEqual, 0, 1, 0);
    answer(kForbid);
    answer(kAllow);
  }
  // Allows setpriority(2) of the calling thread.
  void own_priority(long call) {
    begin(call, 7);
    load(argument(0));
    add(kEqual, PRIO_PROCESS, 1, 0);
    answer(kForbid);
    load(argument(1));
    add(kEqual, 0, 1, 0);
    answer(kForbid);
    answer(kAllow);
  }
  void end(std::uint32_t what) { answer(what); }
  std::vector<sock_filter>& instructions() { return instructions_; }

 private:
  static constexpr int kEqual = BPF_JMP | BPF_JEQ | BPF_K;

  void add(int code, std::uint32_t value, std::uint8_t yes = 0, std::uint8_t no = 0) {
    instructions_.push_back({static_cast<std::uint16_t>(code), yes, no, value});
  }
  void load(std::size_t offset) {
    add(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset));
  }
  void answer(std::uint32_t what) { add(BPF_RET | BPF_K, what); }
  // The next `length` instructions apply to this call only, and always answer.
  void begin(long call, std::size_t length) {
    add(kEqual, static_cast<std::uint32_t>(call), 0, static_cast<std::uint8_t>(length));
  }
  void when_equal(std::uint32_t value, std::uint8_t length) { add(kEqual, value, 0, length); }

  std::vector<sock_filter> instructions_;
};

// clone() may only make threads of this process, not a process or a namespace.
constexpr std::uint32_t kThread = CLONE_VM | CLONE_THREAD | CLONE_SIGHAND;
constexpr std::uint32_t kMakesOther = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                                      CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_PTRACE |
                                      CLONE_VFORK;

// The rules of both lists: no signal, limit, child or handler that reaches beyond the worker.
void add_common(Program& program) {
  program.by_bits(SYS_clone, 0, kThread | kMakesOther, kThread, kAllow, kForbid);
  // The filter cannot look at flags in memory. After ENOSYS the C library uses clone().
  program.always({SYS_clone3}, fail(ENOSYS));
  program.by_value(SYS_tgkill, 0, {static_cast<std::uint32_t>(getpid())}, kAllow, kForbid);
  program.by_value(SYS_rt_sigaction, 0, {SIGSYS}, kForbid, kAllow);
  program.limits_are_read(SYS_prlimit64);
  // The process that closes such a socket last blocks. That is the daemon if the socket is sent to
  // it.
  program.nothing_lingers(SYS_setsockopt);
  // No F_SETOWN or F_SETSIG, which send signals to others.
  program.by_value(SYS_fcntl, 1,
                   {F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_GETLK, F_SETLK, F_DUPFD_CLOEXEC,
                    F_ADD_SEALS, F_GET_SEALS},
                   kAllow, kForbid);
}

void add_emulated_device(Program& program) {
  add_common(program);
  program.own_priority(SYS_setpriority);
  program.always(
      {SYS_read,        SYS_write,         SYS_readv,        SYS_writev,      SYS_pread64,
       SYS_pwrite64,    SYS_recvfrom,      SYS_recvmsg,      SYS_sendto,      SYS_sendmsg,
       SYS_shutdown,    SYS_getsockopt,    SYS_getsockname,  SYS_getpeername, SYS_ppoll,
       SYS_pselect6,    SYS_epoll_create1, SYS_epoll_ctl,    SYS_epoll_pwait, SYS_close,
       SYS_close_range, SYS_dup,           SYS_dup3,         SYS_pipe2,       SYS_eventfd2,
       SYS_lseek,       SYS_fstat,         SYS_memfd_create, SYS_ftruncate,   SYS_fallocate},
      kAllow);
  program.always({SYS_mmap, SYS_munmap, SYS_mprotect, SYS_mremap, SYS_madvise, SYS_msync,
                  SYS_mincore, SYS_brk, SYS_membarrier},
                 kAllow);
  program.always({SYS_futex,           SYS_set_robust_list,
                  SYS_get_robust_list, SYS_rseq,
                  SYS_set_tid_address, SYS_exit,
                  SYS_exit_group,      SYS_restart_syscall,
                  SYS_rt_sigprocmask,  SYS_rt_sigreturn,
                  SYS_rt_sigpending,   SYS_rt_sigsuspend,
                  SYS_rt_sigtimedwait, SYS_sigaltstack,
                  SYS_sched_yield,     SYS_sched_getaffinity,
                  SYS_sched_getparam,  SYS_sched_getscheduler,
                  SYS_getcpu,          SYS_nanosleep,
                  SYS_clock_nanosleep, SYS_clock_gettime,
                  SYS_clock_getres,    SYS_gettimeofday},
                 kAllow);
  program.always(
      {SYS_getpid, SYS_gettid, SYS_getppid, SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid,
       SYS_getpriority, SYS_getrandom, SYS_getrusage, SYS_times, SYS_sysinfo, SYS_uname},
      kAllow);
  program.by_value(SYS_prctl, 0, {PR_SET_NAME, PR_GET_NAME, PR_SET_VMA, PR_GET_DUMPABLE}, kAllow,
                   kForbid);
  program.by_value(SYS_ioctl, 1, {FIONREAD, TIOCOUTQ}, kAllow, fail(ENOTTY));
  // Libraries look for such files. Only hostile code would write one.
  program.by_bits(SYS_openat, 2, O_WRONLY | O_RDWR | O_CREAT | O_TRUNC, 0, fail(EACCES), kForbid);
  program.by_bits(SYS_newfstatat, 3, AT_EMPTY_PATH, AT_EMPTY_PATH, kAllow, fail(EACCES));
  program.always({SYS_faccessat, SYS_faccessat2, SYS_readlinkat, SYS_statx, SYS_getcwd},
                 fail(EACCES));
#if defined(__x86_64__)
  program.always({SYS_poll, SYS_select, SYS_epoll_wait, SYS_dup2, SYS_pipe, SYS_time}, kAllow);
  program.by_value(SYS_arch_prctl, 0, {0x3001}, fail(EINVAL), kForbid);  // ARCH_CET_STATUS.
  program.by_bits(SYS_open, 1, O_WRONLY | O_RDWR | O_CREAT | O_TRUNC, 0, fail(EACCES), kForbid);
  program.always({SYS_stat, SYS_lstat, SYS_access, SYS_readlink}, fail(EACCES));
#endif
  program.end(kForbid);
}

void add_any_driver(Program& program) {
  add_common(program);
  program.always({SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_kcmp, SYS_kill,
                  SYS_tkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, SYS_pidfd_open,
                  SYS_pidfd_getfd, SYS_pidfd_send_signal, SYS_execve, SYS_execveat},
                 kForbid);
  program.always(
      {SYS_setuid,      SYS_setgid,        SYS_setreuid,    SYS_setregid,   SYS_setresuid,
       SYS_setresgid,   SYS_setfsuid,      SYS_setfsgid,    SYS_setgroups,  SYS_capset,
       SYS_unshare,     SYS_setns,         SYS_chroot,      SYS_pivot_root, SYS_mount,
       SYS_umount2,     SYS_move_mount,    SYS_open_tree,   SYS_fsopen,     SYS_fsconfig,
       SYS_fsmount,     SYS_fspick,        SYS_personality, SYS_setpgid,    SYS_setsid,
       SYS_sethostname, SYS_setdomainname, SYS_setrlimit},
      kForbid);
  program.always({SYS_init_module,     SYS_finit_module,
                  SYS_delete_module,   SYS_kexec_load,
                  SYS_reboot,          SYS_bpf,
                  SYS_perf_event_open, SYS_userfaultfd,
                  SYS_io_uring_setup,  SYS_keyctl,
                  SYS_add_key,         SYS_request_key,
                  SYS_fanotify_init,   SYS_open_by_handle_at,
                  SYS_quotactl,        SYS_acct,
                  SYS_swapon,          SYS_swapoff,
                  SYS_settimeofday,    SYS_clock_settime,
                  SYS_adjtimex,        SYS_syslog,
                  SYS_listen,          SYS_accept,
                  SYS_accept4},
                 kForbid);
  program.by_value(SYS_socket, 0, {1}, kAllow,
                   kForbid);  // AF_UNIX: sockets in the file system.
#if defined(__x86_64__)
  program.always({SYS_fork, SYS_vfork, SYS_modify_ldt, SYS_ioperm, SYS_iopl}, kForbid);
#endif
  program.end(kAllow);
}

// Uses only calls that a signal handler may make. The stack may belong to a kernel.
void say_and_end(int, siginfo_t* about, void*) {
  char line[96] = "gpurun-worker: system call ";
  std::size_t length = std::strlen(line);
  char digits[12];
  std::size_t count = 0;
  auto rest = static_cast<unsigned>(about->si_syscall);
  do {
    digits[count++] = static_cast<char>('0' + rest % 10);
  } while ((rest /= 10) != 0);
  while (count > 0) line[length++] = digits[--count];
  for (const char* word = " is forbidden; this worker ends\n"; *word != '\0'; ++word) {
    line[length++] = *word;
  }
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line, length);
  _exit(kExitForbiddenCall);
}

}  // namespace

Status install_filter(AllowedCalls calls) {
  struct sigaction action = {};
  action.sa_sigaction = say_and_end;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  if (sigaction(SIGSYS, &action, nullptr) != 0) return Status::from_errno(errno, "SIGSYS");
  Program program;
  calls == AllowedCalls::kEmulatedDevice ? add_emulated_device(program) : add_any_driver(program);
  std::vector<sock_filter>& list = program.instructions();
  const sock_fprog whole = {static_cast<unsigned short>(list.size()), list.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return Status::from_errno(errno, "no_new_privs");
  // All threads, because the driver may have started some.
  const long result =
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &whole);
  if (result == 0) return {};
  return Status(Code::kUnavailable,
                result > 0 ? std::string("a thread of the driver has a system call filter already")
                           : Status::from_errno(errno, "the system call filter").message());
}

}  // namespace gpurun::server
