// Signals: the program's handlers, masks and waits work around CUDA calls as without gpurun.
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csetjmp>
#include <cstdlib>
#include <thread>
#include <vector>

#include "tests/system/process/cases.h"

namespace process_cases {
namespace {

std::atomic<unsigned> storms[3];
std::atomic<bool> in_a_strange_thread{false};
pthread_t main_thread;

void count_signal(int number) {
  storms[number == SIGALRM ? 0 : number == SIGPROF ? 1 : 2].fetch_add(1);
  // The program has only one thread during the storm.
  if (pthread_equal(pthread_self(), main_thread) == 0) in_a_strange_thread = true;
}

}  // namespace

// Interrupts every wait repeatedly, by handlers without SA_RESTART.
void signal_storm() {
  main_thread = pthread_self();
  struct sigaction action = {};
  action.sa_handler = count_signal;
  for (const int number : {SIGALRM, SIGPROF, SIGCHLD}) sigaction(number, &action, nullptr);
  itimerval often = {{0, 500}, {0, 500}};
  setitimer(ITIMER_REAL, &often, nullptr);
  setitimer(ITIMER_PROF, &often, nullptr);
  use_device();  // The attach is in the storm, too.
  const int rounds = word(0).empty() ? 200 : std::atoi(word(0).c_str());
  for (int round = 0; round < rounds; ++round) {
    if (round % 10 == 0 && fork() == 0) _exit(0);
    compute(static_cast<unsigned char>(round));
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  }
  // SIGPROF comes with the clock's ticks, and a fast program may end before the first.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (storms[1] == 0 && std::chrono::steady_clock::now() < end) compute(1);
  itimerval none = {};
  setitimer(ITIMER_REAL, &none, nullptr);
  setitimer(ITIMER_PROF, &none, nullptr);
  EXPECT(storms[0] > 0 && storms[1] > 0 && storms[2] > 0);
  EXPECT(!in_a_strange_thread);
}

// Signals that all threads of the program block, and for which one of them waits. None of our
// threads takes one.
void signals_waited_for() {
  sigset_t waited, before, after;
  sigemptyset(&waited);
  for (const int number : {SIGUSR1, SIGUSR2, SIGTERM, SIGINT}) sigaddset(&waited, number);
  pthread_sigmask(SIG_BLOCK, &waited, nullptr);
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  use_device();
  compute(1);
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int number = 1; number < 32; ++number) {
    MUST_BE(sigismember(&before, number), sigismember(&after, number));
  }
  for (int round = 0; round < 20; ++round) {
    EXPECT(kill(getpid(), SIGUSR1) == 0);
    int got = 0;
    EXPECT(sigwait(&waited, &got) == 0 && got == SIGUSR1);
  }
  const int fd = signalfd(-1, &waited, SFD_CLOEXEC);
  EXPECT(kill(getpid(), SIGTERM) == 0);
  pollfd ready = {fd, POLLIN, 0};
  EXPECT(poll(&ready, 1, 20'000) == 1);
  signalfd_siginfo told = {};
  EXPECT(read(fd, &told, sizeof told) == sizeof told && told.ssi_signo == SIGTERM);
  compute(2);
}

// The program's handler of SIGSEGV, on its alternate stack, and its other dispositions are
// unchanged.
void own_handlers() {
  static sigjmp_buf back;
  static unsigned char stack[64 << 10];
  static std::atomic<bool> on_own_stack{false};
  stack_t alternate = {};
  alternate.ss_sp = stack;
  alternate.ss_size = sizeof stack;
  EXPECT(sigaltstack(&alternate, nullptr) == 0);
  struct sigaction action = {};
  action.sa_flags = SA_ONSTACK;
  action.sa_handler = [](int) {
    // Not a variable's address, because AddressSanitizer may place variables elsewhere.
    const auto* const here = static_cast<const unsigned char*>(__builtin_frame_address(0));
    on_own_stack = here >= stack && here < stack + sizeof stack;
    siglongjmp(back, 1);
  };
  EXPECT(sigaction(SIGSEGV, &action, nullptr) == 0);
  struct sigaction before[32] = {}, after = {};
  for (int number = 1; number < 32; ++number) sigaction(number, nullptr, &before[number]);
  use_device();
  compute(1);
  for (int number = 1; number < 32; ++number) {
    EXPECT(sigaction(number, nullptr, &after) == 0 || number == SIGKILL || number == SIGSTOP);
    EXPECT(after.sa_handler == before[number].sa_handler || number == SIGKILL || number == SIGSTOP);
  }
  stack_t now = {};
  EXPECT(sigaltstack(nullptr, &now) == 0 && now.ss_sp == stack);
  if (sigsetjmp(back, 1) == 0) raise(SIGSEGV);
  EXPECT(on_own_stack);
  compute(2);
}

// Computes until its input ends. Prints when it has begun.
void steady() {
  use_device();
  compute(0);
  say("ready\n");
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  unsigned rounds = 0;
  while (poll(&input, 1, 0) == 0) compute(static_cast<unsigned char>(rounds++));
}

}  // namespace process_cases
