// Signal handling for device code. The handler only stores the fault and sends the thread to its
// landing stack. Everything else happens there, as ordinary code.
#include "emulated/engine/fault.h"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <mutex>

#include "base/log.h"
#include "emulated/engine/sanitizers.h"

namespace gpurun::emulated {

namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
constexpr int kSignalCount = 4;
constexpr std::size_t kSignalStackBytes = 64 * 1024;
constexpr std::size_t kLandingStackBytes = 64 * 1024;

thread_local FaultCatcher* armed_catcher = nullptr;

// Guarded by a mutex for writing. The handler reads `previous` without it. It cannot change then,
// because the handlers are restored before the entries are reused.
std::mutex& handlers_mutex() {
  static std::mutex mutex;
  return mutex;
}
int handlers_users = 0;
struct sigaction previous[kSignalCount];

int index_of(int signal_number) {
  for (int i = 0; i < kSignalCount; ++i) {
    if (kSignals[i] == signal_number) return i;
  }
  return 0;
}

std::uint64_t program_counter(const ucontext_t* context) {
#if defined(__x86_64__)
  return static_cast<std::uint64_t>(context->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return context->uc_mcontext.pc;
#else
#error "the emulated device runs on x86-64 and AArch64"
#endif
}

// Makes the interrupted thread continue in `function(argument)` on the stack that ends at `high`.
void redirect(ucontext_t* context, void (*function)(FaultCatcher*), FaultCatcher* argument,
              std::uint8_t* high) {
  const auto top = reinterpret_cast<std::uint64_t>(high) & ~std::uint64_t{15};
#if defined(__x86_64__)
  context->uc_mcontext.gregs[REG_RIP] = reinterpret_cast<greg_t>(function);
  context->uc_mcontext.gregs[REG_RDI] = reinterpret_cast<greg_t>(argument);
  context->uc_mcontext.gregs[REG_RSP] = static_cast<greg_t>(top - 8);  // As after a call.
  context->uc_mcontext.gregs[REG_RBP] = 0;
  context->uc_mcontext.gregs[REG_EFL] &= ~greg_t{0x400};  // Direction flag, as the ABI wants it.
#elif defined(__aarch64__)
  context->uc_mcontext.pc = reinterpret_cast<std::uint64_t>(function);
  context->uc_mcontext.regs[0] = reinterpret_cast<std::uint64_t>(argument);
  context->uc_mcontext.regs[29] = 0;
  context->uc_mcontext.sp = top;
#endif
}

// The signal is not ours. Does what would have happened without us.
void chain(int signal_number, siginfo_t* info, void* context) {
  const struct sigaction& old = previous[index_of(signal_number)];
  if ((old.sa_flags & SA_SIGINFO) != 0) {
    if (old.sa_sigaction != nullptr) {
      old.sa_sigaction(signal_number, info, context);
      return;
    }
  } else if (old.sa_handler == SIG_IGN && info->si_code <= 0) {
    return;  // Sent by a process, and ignored.
  } else if (old.sa_handler != SIG_DFL && old.sa_handler != SIG_IGN) {
    old.sa_handler(signal_number);
    return;
  }
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  sigaction(signal_number, &standard, nullptr);
  // A real fault happens again on return. A sent signal must be sent again.
  if (info->si_code <= 0) raise(signal_number);
}

}  // namespace

struct FaultSignal {
  static void handle(int signal_number, siginfo_t* info, void* context_pointer) {
    const int saved_errno = errno;
    auto* context = static_cast<ucontext_t*>(context_pointer);
    FaultCatcher* catcher = armed_catcher;
    if (catcher == nullptr || info->si_code <= 0) {
      chain(signal_number, info, context_pointer);
      errno = saved_errno;
      return;
    }
    const auto address = reinterpret_cast<std::uint64_t>(info->si_addr);
    armed_catcher = nullptr;
    catcher->fault_ = {signal_number, info->si_code, address, program_counter(context)};
    redirect(context, FaultCatcher::land, catcher,
             catcher->stacks_ + kSignalStackBytes + kLandingStackBytes);
    errno = saved_errno;
  }

  static void install(int index) {
    struct sigaction ours {};
    ours.sa_sigaction = handle;
    // On the signal stack, because a kernel's own stack may be what overflowed. Not deferred,
    // because the handler is left through the landing stack and the next fault must be delivered.
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigemptyset(&ours.sa_mask);
    struct sigaction old {};
    if (sigaction(kSignals[index], &ours, &old) != 0) return;
    const bool already = (old.sa_flags & SA_SIGINFO) != 0 && old.sa_sigaction == handle;
    if (!already) previous[index] = old;
  }

  static void uninstall(int index) {
    struct sigaction now {};
    if (sigaction(kSignals[index], nullptr, &now) != 0) return;
    // A program that installed its handler after us keeps it.
    if ((now.sa_flags & SA_SIGINFO) == 0 || now.sa_sigaction != handle) return;
    sigaction(kSignals[index], &previous[index], nullptr);
  }
};

FaultHandlers::FaultHandlers() {
  std::lock_guard lock(handlers_mutex());
  if (handlers_users++ > 0) return;
  for (int i = 0; i < kSignalCount; ++i) FaultSignal::install(i);
}

FaultHandlers::~FaultHandlers() {
  std::lock_guard lock(handlers_mutex());
  if (--handlers_users > 0) return;
  for (int i = 0; i < kSignalCount; ++i) FaultSignal::uninstall(i);
}

void FaultHandlers::refresh() {
  std::lock_guard lock(handlers_mutex());
  if (handlers_users == 0) return;
  for (int i = 0; i < kSignalCount; ++i) {
    struct sigaction now {};
    if (sigaction(kSignals[i], nullptr, &now) != 0) continue;
    if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == FaultSignal::handle) continue;
    FaultSignal::install(i);
  }
}

FaultCatcher::FaultCatcher(Landed landed, void* argument) : landed_(landed), argument_(argument) {
  void* memory = mmap(nullptr, kSignalStackBytes + kLandingStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    log::write(log::Level::kError, "no memory for a signal stack; a kernel's fault will be fatal");
    return;
  }
  stacks_ = static_cast<std::uint8_t*>(memory);
  stack_t old{};
  if (sigaltstack(nullptr, &old) == 0 && (old.ss_flags & SS_DISABLE) == 0) return;  // It has one.
  stack_t ours{};
  ours.ss_sp = stacks_;
  ours.ss_size = kSignalStackBytes;
  own_signal_stack_ = sigaltstack(&ours, nullptr) == 0;
}

FaultCatcher::~FaultCatcher() {
  if (own_signal_stack_) {
    stack_t off{};
    off.ss_flags = SS_DISABLE;
    (void)sigaltstack(&off, nullptr);
  }
  if (stacks_ != nullptr) munmap(stacks_, kSignalStackBytes + kLandingStackBytes);
}

void FaultCatcher::arm() {
  if (stacks_ != nullptr) armed_catcher = this;
}

void FaultCatcher::disarm() {
  armed_catcher = nullptr;
  if (fault_.signal == 0) return;
  fault_ = {};
  // The code on the landing stack did not return.
  sanitizers::forget_stack(stacks_, kSignalStackBytes + kLandingStackBytes);
}

void FaultCatcher::land(FaultCatcher* self) {
  sanitizers::moved_to_stack(self->stacks_ + kSignalStackBytes, kLandingStackBytes);
  self->landed_(self->argument_);
  std::abort();  // There is nothing to return to.
}

}  // namespace gpurun::emulated
