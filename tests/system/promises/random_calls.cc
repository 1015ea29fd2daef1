// random_calls: makes CUDA calls in a random order and prints each before it makes it ("7 launch"),
// for tests that kill at a random call. Ends with 1 when a call fails. Its words:
//   calls SEED [N]   runs forever. With N it kills itself in place of call N.
//   copy SEED        copies 64 MiB back and forth forever.
//   end SEED         prints "running", waits for a line, makes some calls, prints "ending" and
//                    ends with status 0.
//   free             prints the device's free and total bytes, before it has used any.
//   hold             takes all memory, prints "full", and waits to be killed.
//   observe SEED N   starts itself N times as another process of the same lease, which dies at a
//                    random call, and once to hold all memory. Prints whether the device's free
//                    bytes fell meanwhile and came back.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "driver_abi/cuda_abi.h"
#include "tests/support/cuda.h"

namespace {

constexpr std::size_t kBytes = std::size_t{1} << 20;  // Of each buffer. Copies of it use bulk.
constexpr std::size_t kMost = 8;                      // Objects of a kind that live at a time.
constexpr const char* kImage =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry axpy(.param .u64 a, .param .u32 n)\n{\n ret;\n}\n";

void say(const std::string& line) {
  const ssize_t written = write(STDOUT_FILENO, line.data(), line.size());
  if (written != static_cast<ssize_t>(line.size())) std::exit(1);  // The reader has gone.
}

// The live objects. Each call uses, creates or destroys one.
struct Device {
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  std::vector<CUdeviceptr> buffers = std::vector<CUdeviceptr>(1);
  std::vector<void*> pinned;
  std::vector<CUstream> streams = std::vector<CUstream>(1);
  std::vector<CUevent> events;
  std::vector<unsigned char> host = std::vector<unsigned char>(kBytes);

  void start() {
    CUcontext context = nullptr;
    say("attaching\n");
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemAlloc_v2(&buffers[0], kBytes));
    // Ordered with the synchronous copies, so that the program itself does not race.
    MUST(cuStreamCreate(&streams[0], CU_STREAM_DEFAULT));
    load();
    MUST(cuCtxSynchronize());
  }
  void load() {
    if (module != nullptr) MUST(cuModuleUnload(module));
    MUST(cuModuleLoadData(&module, kImage));
    MUST(cuModuleGetFunction(&kernel, module, "axpy"));
  }
  void allocate() {
    if (buffers.size() == kMost) {
      MUST(cuMemFree_v2(buffers.back()));
      buffers.pop_back();
    } else {
      MUST(cuMemAlloc_v2(&buffers.emplace_back(), kBytes));
    }
  }
  void pin() {
    if (pinned.size() == kMost) {
      MUST(cuMemFreeHost(pinned.back()));
      pinned.pop_back();
    } else {
      MUST(cuMemAllocHost_v2(&pinned.emplace_back(), kBytes));
    }
  }
  void open_stream() {
    if (streams.size() == kMost) {
      MUST(cuStreamDestroy_v2(streams.back()));
      streams.pop_back();
    } else {
      MUST(cuStreamCreate(&streams.emplace_back(), CU_STREAM_NON_BLOCKING));
    }
  }
  void record() {
    if (events.size() == kMost) {
      MUST(cuEventSynchronize(events.back()));
      MUST(cuEventDestroy_v2(events.back()));
      events.pop_back();
    } else {
      MUST(cuEventCreate(&events.emplace_back(), CU_EVENT_DISABLE_TIMING));
    }
    if (!events.empty()) MUST(cuEventRecord(events.back(), streams.back()));
  }
  void launch() {
    unsigned count = 1;
    void* parameters[] = {&buffers.back(), &count};
    MUST(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, streams.front(), parameters, nullptr));
  }
  void fill() { MUST(cuMemsetD8Async(buffers.back(), 1, kBytes, streams.front())); }
  void copy_in() { MUST(cuMemcpyHtoD_v2(buffers.back(), host.data(), kBytes)); }
  void copy_out() { MUST(cuMemcpyDtoH_v2(host.data(), buffers.back(), kBytes)); }
  void copy_pinned() {
    if (pinned.empty()) return pin();
    MUST(cuMemcpyHtoDAsync_v2(buffers.back(), pinned.back(), kBytes, streams.front()));
    MUST(cuMemcpyDtoHAsync_v2(pinned.front(), buffers.back(), kBytes, streams.front()));
  }
  void synchronize_stream() { MUST(cuStreamSynchronize(streams.back())); }
  void synchronize() { MUST(cuCtxSynchronize()); }
};

struct Call {
  const char* name;
  void (Device::*make)();
};
constexpr Call kCalls[] = {
    {"load", &Device::load},
    {"allocate", &Device::allocate},
    {"pin", &Device::pin},
    {"stream", &Device::open_stream},
    {"record", &Device::record},
    {"launch", &Device::launch},
    {"fill", &Device::fill},
    {"copy in", &Device::copy_in},
    {"copy out", &Device::copy_out},
    {"copy pinned", &Device::copy_pinned},
    {"stream synchronize", &Device::synchronize_stream},
    {"synchronize", &Device::synchronize},
};

// Each prints a word where a test may want to kill.
[[noreturn]] void copy_until_killed() {
  constexpr std::size_t kLarge = std::size_t{64} << 20;
  Device device;
  device.start();
  CUdeviceptr memory = 0;
  std::vector<unsigned char> host(kLarge, 7);
  MUST(cuMemAlloc_v2(&memory, kLarge));
  say("copying\n");
  for (;;) {
    MUST(cuMemcpyHtoD_v2(memory, host.data(), kLarge));
    MUST(cuMemcpyDtoH_v2(host.data(), memory, kLarge));
  }
}

int end_after_calls(std::uint64_t seed) {
  Device device;
  device.start();
  std::mt19937_64 random(seed);
  say("running\n");
  char line[2];
  if (read(STDIN_FILENO, line, 1) != 1) return 1;
  for (int count = 0; count < 20; ++count) {
    (device.*kCalls[random() % std::size(kCalls)].make)();
  }
  say("ending\n");
  return 0;
}

[[noreturn]] void call_until_killed(std::uint64_t seed, std::uint64_t last) {
  Device device;
  device.start();
  std::mt19937_64 random(seed);
  for (std::uint64_t count = 1;; ++count) {
    const Call& call = kCalls[random() % std::size(kCalls)];
    say(std::to_string(count) + " " + call.name + "\n");
    if (count == last) std::raise(SIGKILL);
    (device.*call.make)();
  }
}

void use_device() {
  CUcontext context = nullptr;
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
}

std::size_t free_bytes(std::size_t* total = nullptr) {
  std::size_t free_bytes = 0, total_bytes = 0;
  MUST(cuMemGetInfo_v2(&free_bytes, &total_bytes));
  if (total != nullptr) *total = total_bytes;
  return free_bytes;
}

int print_free() {
  use_device();
  std::size_t total = 0;
  const std::size_t free = free_bytes(&total);
  std::printf("%zu of %zu bytes free\n", free, total);
  return 0;
}

int hold_all() {
  use_device();
  CUdeviceptr memory = 0;
  for (std::size_t each = std::size_t{1} << 30; each >= 4096; each /= 2) {
    while (cuMemAlloc_v2(&memory, each) == CUDA_SUCCESS) {
    }
  }
  say("full\n");
  pause();
  return 1;
}

void expect(bool holds, const char* what) {
  if (holds) return;
  std::printf("WRONG: not so: %s\n", what);
  std::exit(1);
}

// This program as another process. Reads its output until `enough` lines have come.
class Neighbour {
 public:
  Neighbour(std::vector<std::string> words, int enough) {
    words.insert(words.begin(), "/proc/self/exe");
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) std::exit(1);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    if (posix_spawn(&process_, arguments[0], &actions, nullptr, arguments.data(), environ) != 0) {
      std::exit(1);
    }
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    char letter = 0;
    while (enough > 0 && read(ends[0], &letter, 1) == 1) enough -= letter == '\n' ? 1 : 0;
    lived_ = enough == 0;
    output_ = ends[0];
  }
  bool lived() const { return lived_; }
  ~Neighbour() { end(); }
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;
  // Kills it. Returns false when it had ended in another way.
  bool end() {
    if (process_ <= 0) return false;
    kill(process_, SIGKILL);
    int status = 0;
    waitpid(std::exchange(process_, -1), &status, 0);
    close(output_);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  }

 private:
  pid_t process_ = -1;
  int output_ = -1;
  bool lived_ = false;
};

// The server learns of a death a little later.
bool comes_back(std::size_t before) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (free_bytes() != before) {
    if (std::chrono::steady_clock::now() > end) return false;
  }
  return true;
}

int observe(std::uint64_t seed, int count) {
  use_device();
  std::mt19937_64 random(seed);
  const std::size_t before = free_bytes();
  for (int i = 0; i < count; ++i) {
    // It is killed as soon as it has printed so many calls, at whatever point. Its first line, for
    // the attach, comes before it owns anything.
    const int lines = static_cast<int>(random() % 100) + 2;
    Neighbour neighbour({"calls", std::to_string(random())}, lines);
    expect(neighbour.lived(), "a neighbour makes its calls");
    expect(free_bytes() < before, "what a neighbour has is not free");
    expect(neighbour.end(), "a neighbour lives until it is killed");
    expect(comes_back(before), "a dead neighbour's memory is free");
  }
  Neighbour greedy({"hold"}, 1);
  CUdeviceptr memory = 0;
  expect(greedy.lived(), "a neighbour holds all memory");
  expect(cuMemAlloc_v2(&memory, kBytes) == CUDA_ERROR_OUT_OF_MEMORY, "then there is none");
  expect(greedy.end(), "it lives until it is killed");
  expect(comes_back(before), "its memory is free");
  expect(cuMemAlloc_v2(&memory, kBytes) == CUDA_SUCCESS, "and can be had");
  std::printf("%d neighbours died: %zu bytes free as before\n", count + 1, before);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "free") return print_free();
  if (what == "hold") return hold_all();
  if (what == "copy") copy_until_killed();
  if (what == "end" && argc == 3) return end_after_calls(std::strtoull(argv[2], nullptr, 10));
  if (what == "observe" && argc == 4) {
    return observe(std::strtoull(argv[2], nullptr, 10), std::atoi(argv[3]));
  }
  if (what == "calls" && (argc == 3 || argc == 4)) {
    call_until_killed(std::strtoull(argv[2], nullptr, 10),
                      argc == 4 ? std::strtoull(argv[3], nullptr, 10) : 0);
  }
  return 2;
}
