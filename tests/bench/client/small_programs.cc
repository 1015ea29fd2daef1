// Small programs: programs with a context of their own. They time a start, a loop that reads
// results, idle sessions, and a session that leaves nothing of the link to its neighbours.
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "tests/bench/client/bench.h"

namespace gpurun::bench {
namespace {

std::size_t number(const Words& words, std::size_t at, std::size_t otherwise) {
  return at < words.size() ? std::strtoull(words[at].c_str(), nullptr, 10) : otherwise;
}

// The process that started this one ends it by closing its standard input.
bool asked_to_end(int wait_ms) {
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  if (poll(&input, 1, wait_ms) <= 0) return false;
  char word = 0;
  return read(STDIN_FILENO, &word, 1) <= 0;
}

void say_ready() {
  const char line[] = "ready\n";
  static_cast<void>(!write(STDOUT_FILENO, line, sizeof line - 1));
}

// Copies 64 MiB to the device and back, from pageable and from pinned memory. Frees all memory, so
// that only memory that the driver keeps remains. The device allocation is twice as large, because
// neither side keeps an allocation of that size for later (docs/adr/0005). The null device's memory
// would count as the worker's.
void copy_and_free(const SmallProgram& s) {
  CUdeviceptr memory = 0;
  void* pinned = nullptr;
  MUST(CU(cuMemAlloc_v2)(&memory, 2 * Stage::kBytes));
  {
    std::vector<char> pageable(Stage::kBytes);
    fill_randomly(pageable.data(), Stage::kBytes);
    MUST(CU(cuMemcpyHtoD_v2)(memory, pageable.data(), Stage::kBytes));
    MUST(CU(cuMemcpyDtoH_v2)(pageable.data(), memory, Stage::kBytes));
  }
  MUST(CU(cuMemHostAlloc)(&pinned, Stage::kBytes, 0));
  fill_randomly(pinned, Stage::kBytes);
  MUST(CU(cuMemcpyHtoDAsync_v2)(memory, pinned, Stage::kBytes, s.stream));
  MUST(CU(cuMemcpyDtoHAsync_v2)(pinned, memory, Stage::kBytes, s.stream));
  MUST(CU(cuStreamSynchronize)(s.stream));
  MUST(CU(cuMemFreeHost)(pinned));
  MUST(CU(cuMemFree_v2)(memory));
  MUST(CU(cuCtxSynchronize)());
}

}  // namespace

// start SALT: from the first call to the first kernel's result. Both moments are CLOCK_MONOTONIC
// times, like those in a relay's log.
void measure_start(const Words& words, Results* results) {
  const Clock::time_point begin = Clock::now();
  run_small_program(words.empty() ? "" : words[0]);
  const Clock::time_point end = Clock::now();
  results->one("first call", "ns", nanoseconds(begin.time_since_epoch()));
  results->one("first result", "ns", nanoseconds(end.time_since_epoch()));
  results->one("start", "ns", nanoseconds(end - begin));
}

// steady RESULTS LAUNCHES [async]: reads RESULTS results, each after LAUNCHES launches. It reads by
// a copy that waits, or with `async` by an asynchronous copy and a synchronise.
void measure_steady_loop(const Words& words, Results* results) {
  const SmallProgram s = run_small_program("");
  const std::size_t reads = number(words, 0, 10), launches = number(words, 1, 100);
  std::uint64_t values[8] = {};
  void* parameters[8];
  for (int i = 0; i < 8; ++i) parameters[i] = &values[i];
  const Clock::time_point begin = Clock::now();
  for (std::size_t i = 0; i < reads; ++i) {
    for (std::size_t j = 0; j < launches; ++j) {
      MUST(CU(cuLaunchKernel)(s.empty, 1, 1, 1, 32, 1, 1, 0, s.stream, parameters, nullptr));
    }
    std::uint32_t result = 0;
    if (words.size() < 3) {
      MUST(CU(cuMemcpyDtoH_v2)(&result, s.memory, sizeof result));
      continue;
    }
    MUST(CU(cuMemcpyDtoHAsync_v2)(&result, s.memory, sizeof result, s.stream));
    MUST(CU(cuStreamSynchronize)(s.stream));
  }
  results->one("loop", "ns", nanoseconds(Clock::now() - begin));
}

// waits [beside]: the time to read four bytes, which waits for the server (an idle synchronise does
// not). With `beside` another process copies all the while.
void measure_waits(const Words& words, Results* results) {
  int ending[2] = {-1, -1}, ready[2] = {-1, -1};
  pid_t neighbour = 0;
  if (!words.empty()) {
    if (pipe(ending) != 0 || pipe(ready) != 0) must(CUDA_ERROR_UNKNOWN, "pipe");
    neighbour = fork();  // Before any call of CUDA.
    if (neighbour < 0) must(CUDA_ERROR_UNKNOWN, "fork");
    if (neighbour == 0) {
      dup2(ending[0], STDIN_FILENO);
      dup2(ready[1], STDOUT_FILENO);
      close(ending[1]);
      Results unread(true);
      saturate({}, &unread);
      _exit(0);
    }
    close(ready[1]);
    char word = 0;
    if (read(ready[0], &word, 1) != 1) must(CUDA_ERROR_UNKNOWN, "the neighbour");
  }
  const SmallProgram s = run_small_program("");
  std::uint32_t value = 0;
  results->each("copy out 4 B", 4000,
                [&] { MUST(CU(cuMemcpyDtoH_v2)(&value, s.memory, sizeof value)); });
  if (neighbour == 0) return;
  close(ending[1]);
  waitpid(neighbour, nullptr, 0);
}

// idle PROCESSES [copied]: sessions that have had a result, and with `copied` have copied 64 MiB
// both ways. Then they idle until the standard input ends. Each prints that it is ready.
void stay_idle(const Words& words, Results*) {
  std::vector<pid_t> others(number(words, 0, 1) - 1);
  bool first = true;
  for (pid_t& other : others) {
    other = fork();  // Before any call of CUDA.
    if (other < 0) must(CUDA_ERROR_UNKNOWN, "fork");
    first = other > 0;
    if (!first) break;
  }
  const SmallProgram s = run_small_program("");
  if (words.size() > 1) copy_and_free(s);
  say_ready();
  while (!asked_to_end(-1)) {
  }
  if (!first) _exit(0);
  for (const pid_t other : others) waitpid(other, nullptr, 0);
}

// saturate: copies to the device until its standard input ends.
void saturate(const Words&, Results* results) {
  const SmallProgram s = run_small_program("");
  CUdeviceptr memory = 0;
  void* pinned = nullptr;
  MUST(CU(cuMemAlloc_v2)(&memory, Stage::kBytes));
  MUST(CU(cuMemHostAlloc)(&pinned, Stage::kBytes, 0));
  fill_randomly(pinned, Stage::kBytes);
  const auto copy = [&] {
    MUST(CU(cuMemcpyHtoDAsync_v2)(memory, pinned, Stage::kBytes, s.stream));
    MUST(CU(cuStreamSynchronize)(s.stream));
  };
  copy();
  say_ready();
  const Clock::time_point begin = Clock::now();
  double bytes = 0;
  while (!asked_to_end(0)) {
    copy();
    bytes += Stage::kBytes;
  }
  results->one("neighbour's copies", "GB/s", bytes / nanoseconds(Clock::now() - begin));
}

}  // namespace gpurun::bench
