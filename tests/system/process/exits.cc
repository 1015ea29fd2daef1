// Exits: a program ends in each way, while threads call CUDA and work is in progress.
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <map>
#include <string>
#include <thread>

#include "tests/system/process/cases.h"

namespace process_cases {
namespace {

constexpr int kStatus = 7;
std::atomic<int> calls{0};
CUdeviceptr kept = 0;
CUcontext shared_context = nullptr;

void call_for_ever() {
  // Calls may fail once the process has begun to end.
  if (cuCtxSetCurrent(shared_context) != CUDA_SUCCESS) return;
  CUdeviceptr memory = 0;
  unsigned char byte = 0;
  for (;;) {
    if (cuMemAlloc_v2(&memory, 4096) != CUDA_SUCCESS) return;
    if (cuMemsetD8_v2(memory, 1, 4096) != CUDA_SUCCESS) return;
    if (cuMemcpyDtoH_v2(&byte, memory, 1) != CUDA_SUCCESS) return;
    if (cuMemFree_v2(memory) != CUDA_SUCCESS) return;
    calls.fetch_add(1, std::memory_order_relaxed);
  }
}

// Natively these calls succeed or fail, depending on whether the driver has gone. They must not
// hang or crash.
void call_late(const char* when) {
  unsigned char byte = 0;
  static_cast<void>(cuMemsetD8_v2(kept, 3, 16));
  static_cast<void>(cuMemcpyDtoH_v2(&byte, kept, 1));
  static_cast<void>(cuMemFree_v2(kept));
  say(std::string(when) + "\n");
}

struct Late {
  ~Late() {
    if (armed) call_late("a static destructor has called CUDA");
  }
  bool armed = false;
};
Late late;

void leave_by_signal_in_a_call() {
  struct sigaction action = {};
  action.sa_handler = [](int) { std::exit(kStatus); };
  sigaction(SIGALRM, &action, nullptr);
  itimerval soon = {{0, 0}, {0, 30'000}};
  setitimer(ITIMER_REAL, &soon, nullptr);
  call_for_ever();
}

}  // namespace

void leave() {
  const std::string how = word(0);
  shared_context = use_device();
  MUST(cuMemAlloc_v2(&kept, 4096));
  if (how == "signal") {
    say("ready\n");
    return leave_by_signal_in_a_call();
  }
  const bool alone = word(1) == "alone";
  for (int i = 0; i < 3 && !alone; ++i) std::thread(call_for_ever).detach();
  while (!alone && calls.load(std::memory_order_relaxed) < 10) std::this_thread::yield();
  say("ready\n");
  const std::map<std::string, void (*)()> ways = {
      {"exit", [] { std::exit(kStatus); }},
      {"_exit", [] { _exit(kStatus); }},
      {"quick_exit", [] { std::quick_exit(kStatus); }},
      {"abort", [] { std::abort(); }},
      {"terminate", [] { std::terminate(); }},
      {"throw", [] { std::thread([] { throw kStatus; }).join(); }},
      {"thread", [] { std::thread([] { std::exit(kStatus); }).join(); }},
      {"atexit",
       [] {
         std::atexit([] { call_late("an exit handler has called CUDA"); });
         std::exit(kStatus);
       }},
      {"destructor",
       [] {
         late.armed = true;
         std::exit(kStatus);
       }},
      {"two",
       [] {
         std::thread([] { _exit(kStatus); }).detach();
         std::exit(kStatus);
       }},
      {"pthread_exit",
       [] {
         std::thread([] {
           MUST(cuCtxSetCurrent(shared_context));
           compute(4);
           say("the last thread has computed\n");
           std::exit(kStatus);
         }).detach();
         pthread_exit(nullptr);
       }},
      {"killed", [] { raise(SIGKILL); }},
      {"crash", [] { raise(SIGSEGV); }},
  };
  if (how == "return") return;  // From main.
  ways.at(how)();
}

// Contexts of both kinds end while their memory is shared with other processes.
void shared_memory_of_ended_contexts() {
  const auto share = [] {
    CUdeviceptr memory = 0;
    CUipcMemHandle handle{};
    MUST(cuMemAlloc_v2(&memory, 1 << 20));
    MUST(cuIpcGetMemHandle(&handle, memory));
  };
  use_device();
  share();
  MUST(cuDevicePrimaryCtxRelease(0));
  CUcontext own = nullptr;
  MUST(cuCtxCreate_v4(&own, nullptr, 0, 0));
  share();
  MUST(cuCtxDestroy(own));
  use_device();
  compute(3);
}

}  // namespace process_cases
