// with_ordinary_stacks(): if this process cannot raise the limit, the first thread moves to a stack
// that was mapped for it. It stays the first thread, which namespaces and the death signal depend
// on.
#include "base/thread_stacks.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <ucontext.h>

// glibc has them since 2.18. Without them threads get the stack of the shell's limit.
extern "C" int pthread_getattr_default_np(pthread_attr_t*) __attribute__((weak));
extern "C" int pthread_setattr_default_np(const pthread_attr_t*) __attribute__((weak));

namespace gpurun {
namespace {

void use_ordinary_stacks_for_threads() {
  if (pthread_getattr_default_np == nullptr || pthread_setattr_default_np == nullptr) return;
  pthread_attr_t attributes;
  if (pthread_getattr_default_np(&attributes) != 0) return;
  std::size_t bytes = 0;
  if (pthread_attr_getstacksize(&attributes, &bytes) == 0 && bytes != kOrdinaryStackBytes &&
      pthread_attr_setstacksize(&attributes, kOrdinaryStackBytes) == 0) {
    pthread_setattr_default_np(&attributes);
  }
  pthread_attr_destroy(&attributes);
}

// Returns whether the first thread's stack may now grow to the ordinary size.
bool has_ordinary_stack() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kOrdinaryStackBytes) return true;
  limit.rlim_cur = limit.rlim_max < kOrdinaryStackBytes ? limit.rlim_max : kOrdinaryStackBytes;
  return setrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur == kOrdinaryStackBytes;
}

// Holds the arguments, because makecontext() passes no pointers.
struct Moved {
  int (*body)(int, char**) = nullptr;
  int argc = 0;
  char** argv = nullptr;
  int result = 0;
  ucontext_t before = {}, there = {};
} moved;

void run_moved() { moved.result = moved.body(moved.argc, moved.argv); }

}  // namespace

int with_ordinary_stacks(int (*body)(int, char**), int argc, char** argv) {
  use_ordinary_stacks_for_threads();
#ifdef GPURUN_INJECTED_FAULTS  // Sanitizers know the first stack only.
  return body(argc, argv);
#else
  constexpr std::size_t kGuardBytes = std::size_t{64} << 10;
  if (has_ordinary_stack()) return body(argc, argv);
  void* const stack = mmap(nullptr, kGuardBytes + kOrdinaryStackBytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (stack == MAP_FAILED || mprotect(stack, kGuardBytes, PROT_NONE) != 0 ||
      getcontext(&moved.there) != 0) {
    return body(argc, argv);
  }
  moved.body = body;
  moved.argc = argc;
  moved.argv = argv;
  moved.there.uc_stack.ss_sp = static_cast<char*>(stack) + kGuardBytes;
  moved.there.uc_stack.ss_size = kOrdinaryStackBytes;
  moved.there.uc_link = &moved.before;
  makecontext(&moved.there, &run_moved, 0);
  if (swapcontext(&moved.before, &moved.there) != 0) return body(argc, argv);
  return moved.result;  // The stack stays: the return from main() ends the process.
#endif
}

}  // namespace gpurun
