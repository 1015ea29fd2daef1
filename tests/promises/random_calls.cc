// Makes CUDA calls in a random order and says each before it makes it ("7 launch"), for tests that
// kill at a random call. Ends with 1 when a call fails. Its words:
//   calls SEED [N]   without an end; with N it kills itself where it would make call N
//   free             prints the device's free and total bytes, before it has used any
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "driver_abi/cuda_abi.h"

namespace {

constexpr std::size_t kBytes = std::size_t{1} << 20;  // Of each buffer; copies of it go in bulk.
constexpr std::size_t kMost = 8;                      // Objects of a kind that live at a time.
constexpr const char* kImage =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry axpy(.param .u64 a, .param .u32 n)\n{\n ret;\n}\n";

void must(CUresult code, const char* what) {
  if (code == CUDA_SUCCESS) return;
  std::printf("FAILED: %s: %d\n", what, static_cast<int>(code));
  std::exit(1);
}
#define MUST(call) must((call), #call)

// What lives. Each call works on one of it, or makes more, or less.
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
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemAlloc_v2(&buffers[0], kBytes));
    // Ordered with the synchronous copies: the program itself races for no memory.
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

void say(const std::string& line) {
  const ssize_t written = write(STDOUT_FILENO, line.data(), line.size());
  if (written != static_cast<ssize_t>(line.size())) std::exit(1);  // Nobody listens any more.
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

int print_free() {
  CUcontext context = nullptr;
  std::size_t free_bytes = 0, total_bytes = 0;
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
  MUST(cuMemGetInfo_v2(&free_bytes, &total_bytes));
  std::printf("%zu of %zu bytes free\n", free_bytes, total_bytes);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "free") return print_free();
  if (what == "calls" && (argc == 3 || argc == 4)) {
    call_until_killed(std::strtoull(argv[2], nullptr, 10),
                      argc == 4 ? std::strtoull(argv[3], nullptr, 10) : 0);
  }
  return 2;
}
