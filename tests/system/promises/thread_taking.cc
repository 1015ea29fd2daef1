// Thread taking. The heap: the program's own malloc precedes the C library's for all loaded
// libraries, counts and passes on. System calls: the kernel returns each one of the watched thread
// as SIGSYS ("syscall user dispatch"), and the handler makes the call itself.
#include "tests/system/promises/thread_taking.h"

#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

thread_local bool watched = false;
thread_local unsigned allocations = 0;

void count_allocation() {
  if (watched) ++allocations;
}

}  // namespace

// The C library's own functions, under the names that it keeps for a replaced malloc. Ours serve
// the libraries, too.
#pragma GCC visibility push(default)
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

void* malloc(std::size_t bytes) {
  count_allocation();
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  count_allocation();
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, std::size_t bytes) {
  count_allocation();
  return __libc_realloc(memory, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  count_allocation();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  *memory = memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
}
#pragma GCC visibility pop

#if defined(__x86_64__) && defined(PR_SET_SYSCALL_USER_DISPATCH)
extern "C" void gpurun_test_return_from_signal();
extern "C" const char gpurun_test_return_end[];
// The only call that the kernel must let pass: the end of the handler, after it has set
// `dispatched` again.
asm(R"(
  .text
  .type gpurun_test_return_from_signal, @function
gpurun_test_return_from_signal:
  mov $15, %rax
  syscall
gpurun_test_return_end:
  nop
)");

namespace {

// The kernel reads this at each call of this thread.
thread_local volatile char dispatched = SYSCALL_DISPATCH_FILTER_ALLOW;
thread_local gpurun::testing::Taken taken;

long raw_call(long number, const greg_t* registers) {
  long result = number;
  register long fourth asm("r10") = registers[REG_R10];
  register long fifth asm("r8") = registers[REG_R8];
  register long sixth asm("r9") = registers[REG_R9];
  asm volatile("syscall"
               : "+a"(result)
               : "D"(registers[REG_RDI]), "S"(registers[REG_RSI]), "d"(registers[REG_RDX]),
                 "r"(fourth), "r"(fifth), "r"(sixth)
               : "rcx", "r11", "memory");
  return result;
}

// The operation of a futex call. -1: another call.
long futex_operation(long number, const greg_t* registers) {
  return number == SYS_futex ? registers[REG_RSI] & FUTEX_CMD_MASK : -1;
}

void count(long number, long operation) {
  if (operation == FUTEX_WAKE || operation == FUTEX_WAKE_BITSET || operation == FUTEX_WAKE_OP) {
    ++taken.wakes;
  } else if (operation == FUTEX_WAIT || operation == FUTEX_WAIT_BITSET) {
    ++taken.waits;
  } else {
    ++taken.other_calls;
    taken.last_other = number;
  }
}

void make_call(int, siginfo_t* about, void* context) {
  dispatched = SYSCALL_DISPATCH_FILTER_ALLOW;
  greg_t* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const long number = about->si_syscall;
  count(number, futex_operation(number, registers));
  registers[REG_RAX] = raw_call(number, registers);
  dispatched = SYSCALL_DISPATCH_FILTER_BLOCK;
}

// As the kernel defines it, because the C library would install its own return path.
struct KernelAction {
  void (*handler)(int, siginfo_t*, void*);
  unsigned long flags;
  void (*restorer)();
  std::uint64_t mask;
};

bool see_calls() {
  constexpr unsigned long kRestorer = 0x04000000;
  const KernelAction action{make_call, SA_SIGINFO | kRestorer, gpurun_test_return_from_signal, 0};
  if (syscall(SYS_rt_sigaction, SIGSYS, &action, nullptr, sizeof action.mask) != 0) return false;
  const auto from = reinterpret_cast<std::uintptr_t>(&gpurun_test_return_from_signal);
  const auto end = reinterpret_cast<std::uintptr_t>(&gpurun_test_return_end[0]);
  // The instruction of the call precedes the address that the kernel sees.
  return prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, from, end - from + 1,
               &dispatched) == 0;
}

void stop_seeing() {
  dispatched = SYSCALL_DISPATCH_FILTER_ALLOW;
  static_cast<void>(prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0));
}

}  // namespace
#else
namespace {
thread_local gpurun::testing::Taken taken;
thread_local char dispatched = 0;
constexpr char SYSCALL_DISPATCH_FILTER_BLOCK = 1;
bool see_calls() { return false; }
void stop_seeing() {}
}  // namespace
#endif

namespace gpurun::testing {

void watch_this_thread() {
  taken = {};
  taken.seen = see_calls();
  allocations = 0;
  watched = true;
  if (taken.seen) dispatched = SYSCALL_DISPATCH_FILTER_BLOCK;
}

Taken stop_watching() {
  stop_seeing();
  watched = false;
  taken.allocations = allocations;
  return taken;
}

}  // namespace gpurun::testing
