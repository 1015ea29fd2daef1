// Forks: processes that this one makes, in each order with CUDA's start. A child of a process that
// has called cuInit gets CUDA_ERROR_NOT_INITIALIZED, as from NVIDIA's driver.
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "tests/system/process/cases.h"

extern char** environ;

namespace process_cases {
namespace {

// The results in a child of a process that uses CUDA, call by call.
std::string heard() {
  CUdeviceptr memory = 0;
  CUcontext context = nullptr;
  int count = 0;
  std::string codes;
  for (const int code :
       {static_cast<int>(cuMemAlloc_v2(&memory, 16)), static_cast<int>(cuCtxSynchronize()),
        static_cast<int>(cuMemFree_v2(16)), static_cast<int>(cuDeviceGetCount(&count)),
        static_cast<int>(cuDevicePrimaryCtxRetain(&context, 0)), static_cast<int>(cuInit(0))}) {
    codes += " " + std::to_string(code);
  }
  return codes;
}

void in_child(const char* what, void (*body)()) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  EXPECT(child > 0);
  say(std::string(what) + ": " + end_of(child) + "\n");
}

// Queries that need no cuInit, each by its name.
void ask_version() {
  int version = 0;
  MUST(cuDriverGetVersion(&version));
  EXPECT(version >= 13000);
}

// Queries a function that the first drivers of CUDA 13 lack.
void ask_new_function() {
  void* function = nullptr;
  CUdriverProcAddressQueryResult status{};
  MUST(cuGetProcAddress_v2("cuGraphGetId", &function, 13010, 0, &status));
  EXPECT(function != nullptr);
}

struct Nvml {
  int (*init)();
  int (*count_devices)(unsigned*);
  int (*get_version)(char*, unsigned);
};

// Programs with threads call this before they fork, because a child may find the loader's lock
// held.
const Nvml& nvml() {
  static const Nvml functions = [] {
    void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    EXPECT(library != nullptr);
    return Nvml{
        reinterpret_cast<decltype(Nvml::init)>(dlsym(library, "nvmlInit_v2")),
        reinterpret_cast<decltype(Nvml::count_devices)>(dlsym(library, "nvmlDeviceGetCount_v2")),
        reinterpret_cast<decltype(Nvml::get_version)>(
            dlsym(library, "nvmlSystemGetDriverVersion"))};
  }();
  return functions;
}

// Returns the driver's version, which programs parse.
std::string ask_nvml() {
  MUST_BE(0, nvml().init());
  unsigned count = 0;
  MUST_BE(0, nvml().count_devices(&count));
  EXPECT(count == 1);
  char version[80] = "";
  MUST_BE(0, nvml().get_version(version, sizeof version));
  int major = 0;
  int minor = 0;
  int patch = 0;
  char more = 0;
  EXPECT(std::sscanf(version, "%d.%d.%d%c", &major, &minor, &patch, &more) == 3);
  EXPECT(major >= 525);
  return version;
}

void ask_all() {
  ask_version();
  ask_new_function();
  static_cast<void>(ask_nvml());
}

void ask(const std::string& what) {
  if (what == "version") ask_version();
  if (what == "function") ask_new_function();
  if (what == "nvml") static_cast<void>(ask_nvml());
}

void tell_heard() { say("the child hears" + heard() + "\n"); }

std::string self() {
  char path[4096];
  const ssize_t bytes = readlink("/proc/self/exe", path, sizeof path);
  EXPECT(bytes > 0);
  return std::string(path, static_cast<std::size_t>(bytes));
}

}  // namespace

void fork_before_init() {
  in_child("child", work);
  const pid_t together = fork();  // Both start at once.
  work();
  if (together == 0) _exit(0);
  say("together: " + end_of(together) + "\n");
  in_child("afterwards", tell_heard);
  compute(3);
}

void fork_after_init() {
  MUST(cuInit(0));
  in_child("child", tell_heard);
  use_device();
  compute(1);
}

void fork_after_context() {
  use_device();
  CUdeviceptr memory = 0;
  MUST(cuMemAlloc_v2(&memory, 4096));
  MUST(cuMemsetD8_v2(memory, 9, 4096));
  in_child("child", tell_heard);
  in_child("child that leaves by exit()", [] { std::exit(0); });
  in_child("child that only computes", [] {
    std::vector<int> numbers(1'000'000, 1);
    long sum = 0;
    for (const int number : numbers) sum += number;
#ifndef GPURUN_TSAN  // ThreadSanitizer allows no thread in such a child.
    std::thread([&] { ++sum; }).join();
#else
    ++sum;
#endif
    std::exit(sum == 1'000'001 ? 0 : 1);
  });
  unsigned char got[4096] = {};
  MUST(cuMemcpyDtoH_v2(got, memory, sizeof got));
  EXPECT(got[0] == 9 && got[4095] == 9);
  compute(2);
}

// No lock that another thread holds at the moment of the fork may block the child.
void fork_from_a_thread() {
  const CUcontext context = use_device();
  std::atomic<bool> over{false};
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([&, i] {
      while (!over) {
        // Also short-lived threads: each takes and returns CUDA's data of a thread.
        std::thread([&] {
          MUST(cuCtxSetCurrent(context));
          compute(static_cast<unsigned char>(i));
        }).join();
      }
    });
  }
  const int rounds = word(0).empty() ? 40 : std::atoi(word(0).c_str());
  std::thread([&] {
    for (int round = 0; round < rounds; ++round) {
      const pid_t child = fork();
      if (child == 0) {
        alarm(20);
        EXPECT(heard() == " 3 3 3 3 3 3");
        if (round % 2 == 0) std::exit(0);
        return;  // As the end of the child's only thread.
      }
      EXPECT(end_of(child) == "exit 0");
    }
  }).join();
  over = true;
  for (std::thread& each : callers) each.join();
  say("children heard what they must\n");
}

// Children that end in each way. The parent continues undisturbed.
void fork_child_ends() {
  use_device();
  for (int how = 0; how < 5; ++how) {
    const pid_t child = fork();
    if (child == 0) {
      if (how == 0) std::exit(4);
      if (how == 1) _exit(4);
      if (how == 2) std::abort();
      if (how == 3) raise(SIGKILL);
      std::quick_exit(4);
    }
    say(end_of(child) + "\n");
    compute(static_cast<unsigned char>(how));
  }
}

void fork_grandchild() {
  in_child("child", [] {
    in_child("grandchild before", work);
    work();
    in_child("grandchild after", tell_heard);
  });
  work();
  in_child("child", [] {
    tell_heard();
    in_child("grandchild", tell_heard);
  });
}

// Word: the parent's query before it makes children. The parent has not called cuInit, so they and
// their children start afresh. After its cuInit they cannot, but calls that need no cuInit work.
void fork_after_questions() {
  ask(word(0));
  in_child("child", work);
  in_child("child that asks, too", [] {
    ask_all();
    in_child("grandchild", work);
    work();
    in_child("grandchild after", tell_heard);
  });
  const auto raw = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  if (raw == 0) {
    work();
    _exit(0);
  }
  say("made by clone(): " + end_of(raw) + "\n");
  work();
  in_child("afterwards", [] {
    ask_all();
    tell_heard();
    ask_all();
    in_child("grandchild afterwards", [] {
      tell_heard();
      ask_all();
    });
  });
  compute(4);
  say("driver " + ask_nvml() + "\n");
}

// Other threads query meanwhile, so that the fork happens at any moment of an attach or a query.
// Word: whether they also compute.
void fork_while_asked() {
  const bool computes = word(0) == "compute";
  const CUcontext context = computes ? use_device() : nullptr;
  static_cast<void>(nvml());
  std::atomic<bool> over{false};
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([&] {
      if (computes) MUST(cuCtxSetCurrent(context));
      while (!over) {
        ask_all();
        if (computes) compute(3);
      }
    });
  }
  for (int round = 0; round < 20; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      ask_all();
      if (computes) {
        EXPECT(heard() == " 3 3 3 3 3 3");
      } else {
        work();
      }
      _exit(0);
    }
    EXPECT(end_of(child) == "exit 0");
  }
  over = true;
  for (std::thread& each : callers) each.join();
}

// In each round a process forks while its threads make their first query, so that the fork happens
// at any moment of the preparation for a first query.
void fork_at_first_question() {
  static_cast<void>(nvml());
  for (int round = 0; round < 40; ++round) {
    const pid_t first = fork();
    if (first == 0) {
      alarm(60);
      std::atomic<int> started{0};
      std::vector<std::thread> callers;
      for (int i = 0; i < 2; ++i) {
        callers.emplace_back([&] {
          ++started;
          ask_all();
        });
      }
      while (started == 0) std::this_thread::yield();
      const pid_t child = fork();
      if (child == 0) {
        alarm(60);
        ask_all();
        _exit(0);
      }
      EXPECT(end_of(child) == "exit 0");
      for (std::thread& each : callers) each.join();
      _exit(0);
    }
    EXPECT(end_of(first) == "exit 0");
  }
}

void fork_and_exec() {
  use_device();
  const std::string program = self();
  std::vector<char*> arguments = {const_cast<char*>(program.c_str()), const_cast<char*>("work"),
                                  nullptr};
  pid_t child = fork();
  if (child == 0) {
    execv(program.c_str(), arguments.data());
    _exit(127);
  }
  say("fork and exec: " + end_of(child) + "\n");
  EXPECT(posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments.data(), environ) == 0);
  say("posix_spawn: " + end_of(child) + "\n");
  child = vfork();
  if (child == 0) {
    execv(program.c_str(), arguments.data());
    _exit(127);
  }
  say("vfork and exec: " + end_of(child) + "\n");
  if (word(0) == "without-shells") return;
  const std::string command = program + " work";
  EXPECT(std::system(command.c_str()) == 0);
  std::FILE* output = popen(command.c_str(), "r");
  char line[64] = "";
  EXPECT(output != nullptr && std::fgets(line, sizeof line, output) != nullptr);
  say("popen: " + std::string(line) + "popen: " + std::to_string(pclose(output)) + "\n");
  compute(5);
}

// A child made without the C library's fork, so that no handler of ours runs in it.
void fork_without_handlers() {
  use_device();
  const auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  if (child == 0) {
    tell_heard();
    _exit(0);
  }
  say("child: " + end_of(child) + "\n");
  compute(8);
}

void exec_from_a_thread() {
  const CUcontext context = use_device();
  const std::string program = self();
  std::vector<std::thread> callers;
  std::atomic<int> going{0};
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([&] {
      MUST(cuCtxSetCurrent(context));
      for (;;) {
        compute(6);
        ++going;
      }
    });
  }
  while (going < 10) std::this_thread::yield();
  std::thread([&] { execl(program.c_str(), program.c_str(), "work", nullptr); }).join();
  _exit(1);  // execl() returned.
}

// A child that outlives its killed parent. It prints its process id and the parent's, and stays.
void orphan() {
  use_device();
  compute(1);
  const bool raw = word(0) == "raw";
  const pid_t child = raw ? static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)) : fork();
  if (child == 0) {
    if (raw) tell_heard();
    say("child " + std::to_string(getpid()) + " of " + std::to_string(getppid()) + "\n");
  }
  for (;;) pause();
}

// daemon(3) as services use it, with all descriptors except the standard ones closed, then CUDA.
void daemon_of_its_own() {
  if (word(0) == "parent-too") use_device();
  if (word(0) == "parent-asks") ask_all();
  int gone[2];
  EXPECT(pipe(gone) == 0);
  pid_t child = fork();
  if (child != 0) {
    EXPECT(end_of(child) == "exit 0");  // Said by nobody: the daemon may speak before or after.
    close(gone[1]);
    char byte = 0;
    EXPECT(read(gone[0], &byte, 1) == 1);  // The daemon has computed.
    return;
  }
  setsid();
  if (fork() != 0) _exit(0);
  EXPECT(dup2(gone[1], 3) == 3);
  syscall(SYS_close_range, 4, ~0U, 0);
  if (word(0) == "parent-too") {
    tell_heard();
  } else {
    work();
    say("the daemon has computed\n");
  }
  EXPECT(write(3, "x", 1) == 1);
  if (word(1) == "stays") {
    say("daemon " + std::to_string(getpid()) + "\n");
    for (;;) {
      compute(2);
      usleep(50'000);
    }
  }
  _exit(0);
}

}  // namespace process_cases
