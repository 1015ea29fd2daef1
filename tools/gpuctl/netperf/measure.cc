// Measuring: round trips, small calls, and copies with memory of both kinds.
#include "tools/gpuctl/netperf/measure.h"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "driver_abi/cuda_abi.h"

namespace gpurun::tools {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;
using nlohmann::json;

constexpr std::size_t kCopyBytesMin = std::size_t{256} << 10;
constexpr std::size_t kCopyBytesMax = std::size_t{64} << 20;
constexpr std::size_t kSamplesMax = 1'000'000;
constexpr int kWarmUpCalls = 20;
constexpr int kCallsAtOnce = 1000;
constexpr int kCopiesAtOnceMax = 256;
constexpr double kBatchSecondsMax = 1;

// The functions of the driver, by their exported names. The client library has them all.
struct Driver {
  decltype(&cuInit) init = nullptr;
  decltype(&cuDeviceGet) device_get = nullptr;
  decltype(&cuDevicePrimaryCtxRetain) retain = nullptr;
  decltype(&cuCtxSetCurrent) set_current = nullptr;
  decltype(&cuStreamCreate) stream_create = nullptr;
  decltype(&cuStreamSynchronize) stream_synchronize = nullptr;
  decltype(&cuEventCreate) event_create = nullptr;
  decltype(&cuEventRecord) event_record = nullptr;
  decltype(&cuEventElapsedTime) event_elapsed = nullptr;
  decltype(&cuMemAlloc_v2) allocate = nullptr;
  decltype(&cuMemHostAlloc) host_allocate = nullptr;
  decltype(&cuMemsetD32Async) fill = nullptr;
  decltype(&cuMemcpyDtoH_v2) read = nullptr;
  decltype(&cuMemcpyHtoDAsync_v2) to_device = nullptr;
  decltype(&cuMemcpyDtoHAsync_v2) from_device = nullptr;
};

Status open_driver(Driver* driver) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Status(Code::kUnavailable, dlerror());
  Status missing;
  const auto find = [&](const char* name, auto* function) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, name));
    if (*function == nullptr) {
      missing = Status(Code::kUnavailable, std::string("libcuda.so.1 has no ") + name);
    }
  };
  find("cuInit", &driver->init);
  find("cuDeviceGet", &driver->device_get);
  find("cuDevicePrimaryCtxRetain", &driver->retain);
  find("cuCtxSetCurrent", &driver->set_current);
  find("cuStreamCreate", &driver->stream_create);
  find("cuStreamSynchronize", &driver->stream_synchronize);
  find("cuEventCreate", &driver->event_create);
  find("cuEventRecord", &driver->event_record);
  find("cuEventElapsedTime", &driver->event_elapsed);
  find("cuMemAlloc_v2", &driver->allocate);
  find("cuMemHostAlloc", &driver->host_allocate);
  find("cuMemsetD32Async", &driver->fill);
  find("cuMemcpyDtoH_v2", &driver->read);
  find("cuMemcpyHtoDAsync_v2", &driver->to_device);
  find("cuMemcpyDtoHAsync_v2", &driver->from_device);
  return missing;
}

Status checked(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return {};
  return Status::cuda(result, std::string(call) + " failed with error " + std::to_string(result));
}

// Bytes that no link can pack, so that a copy's speed is that of its bytes.
void fill_unpackable(void* memory, std::size_t bytes) {
  std::uint64_t state = 0x9e37'79b9'7f4a'7c15;
  for (std::size_t at = 0; at + sizeof state <= bytes; at += sizeof state) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(static_cast<char*>(memory) + at, &state, sizeof state);
  }
}

void print_line(const json& line) {
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

class Session {
 public:
  Status open();
  Status measure(std::chrono::milliseconds time);

 private:
  using Call = std::function<CUresult()>;

  Status measure_latency(const char* what, Seconds time, const Call& call);
  Status measure_calls(Seconds time);
  // Prints two lines. `time` is that of both.
  Status measure_copies(const std::string& way, Seconds time, bool to_device);
  // The seconds that `count` copies take, with their wait.
  Result<double> copy(bool to_device, char* host, std::size_t bytes, int count);

  Driver driver_;
  CUstream stream_ = nullptr;
  CUevent before_ = nullptr, after_ = nullptr;
  CUdeviceptr memory_ = 0;
  std::size_t written_ = 0;  // Bytes at `memory_` that have come from the host.
  Seconds round_trip_{0};    // Median. Known after its measurement.
  char* pinned_ = nullptr;
  std::unique_ptr<char, decltype(&std::free)> pageable_{nullptr, &std::free};
};

Status Session::open() {
  GPURUN_RETURN_IF_ERROR(open_driver(&driver_));
  GPURUN_RETURN_IF_ERROR(checked(driver_.init(0), "cuInit"));
  CUdevice device = 0;
  GPURUN_RETURN_IF_ERROR(checked(driver_.device_get(&device, 0), "cuDeviceGet"));
  CUcontext context = nullptr;
  GPURUN_RETURN_IF_ERROR(checked(driver_.retain(&context, device), "cuDevicePrimaryCtxRetain"));
  GPURUN_RETURN_IF_ERROR(checked(driver_.set_current(context), "cuCtxSetCurrent"));
  GPURUN_RETURN_IF_ERROR(
      checked(driver_.stream_create(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate"));
  GPURUN_RETURN_IF_ERROR(checked(driver_.event_create(&before_, 0), "cuEventCreate"));
  GPURUN_RETURN_IF_ERROR(checked(driver_.event_create(&after_, 0), "cuEventCreate"));
  GPURUN_RETURN_IF_ERROR(checked(driver_.allocate(&memory_, kCopyBytesMax), "cuMemAlloc"));
  void* pinned = nullptr;
  GPURUN_RETURN_IF_ERROR(
      checked(driver_.host_allocate(&pinned, kCopyBytesMax, 0), "cuMemHostAlloc"));
  pinned_ = static_cast<char*>(pinned);
  pageable_.reset(static_cast<char*>(std::malloc(kCopyBytesMax)));
  if (pageable_ == nullptr) return Status(Code::kResourceExhausted, "64 MiB of memory are missing");
  fill_unpackable(pinned_, kCopyBytesMax);
  fill_unpackable(pageable_.get(), kCopyBytesMax);
  return {};
}

Status Session::measure(std::chrono::milliseconds time) {
  const Seconds all = time;
  GPURUN_RETURN_IF_ERROR(checked(driver_.event_record(before_, stream_), "cuEventRecord"));
  GPURUN_RETURN_IF_ERROR(checked(driver_.event_record(after_, stream_), "cuEventRecord"));
  GPURUN_RETURN_IF_ERROR(checked(driver_.stream_synchronize(stream_), "cuStreamSynchronize"));
  // The worker answers this call, and the device has no part in it.
  float elapsed = 0;
  GPURUN_RETURN_IF_ERROR(measure_latency("round_trip", 0.2 * all, [this, &elapsed] {
    return driver_.event_elapsed(&elapsed, before_, after_);
  }));
  unsigned word = 0;
  GPURUN_RETURN_IF_ERROR(measure_latency(
      "result", 0.15 * all, [this, &word] { return driver_.read(&word, memory_, sizeof word); }));
  GPURUN_RETURN_IF_ERROR(measure_calls(0.15 * all));
  GPURUN_RETURN_IF_ERROR(measure_copies("to_device", 0.25 * all, true));
  return measure_copies("from_device", 0.25 * all, false);
}

Status Session::measure_latency(const char* what, Seconds time, const Call& call) {
  for (int i = 0; i < kWarmUpCalls; ++i) GPURUN_RETURN_IF_ERROR(checked(call(), what));
  std::vector<double> samples;
  // Growth between two calls would be part of a sample. These pages are touched here.
  samples.resize(kSamplesMax);
  samples.clear();
  const auto begin = Clock::now();
  for (auto last = begin; last - begin < time && samples.size() < kSamplesMax;) {
    const CUresult result = call();
    const auto now = Clock::now();
    GPURUN_RETURN_IF_ERROR(checked(result, what));
    samples.push_back(std::chrono::duration<double, std::micro>(now - last).count());
    last = now;
  }
  const Percentiles found = percentiles(std::move(samples));
  if (round_trip_.count() == 0) round_trip_ = Seconds(found.p50 / 1e6);
  print_line({{"what", what},
              {"p50", found.p50},
              {"p90", found.p90},
              {"p99", found.p99},
              {"max", found.max},
              {"count", found.count}});
  return {};
}

Status Session::measure_calls(Seconds time) {
  const auto batch = [this]() -> Status {
    for (int i = 0; i < kCallsAtOnce; ++i) {
      GPURUN_RETURN_IF_ERROR(checked(driver_.fill(memory_, 1, 1, stream_), "cuMemsetD32Async"));
    }
    return checked(driver_.stream_synchronize(stream_), "cuStreamSynchronize");
  };
  GPURUN_RETURN_IF_ERROR(batch());  // The first one warms up, and is not counted.
  std::size_t count = 0;
  const auto begin = Clock::now();
  while (Clock::now() - begin < time) {
    GPURUN_RETURN_IF_ERROR(batch());
    count += kCallsAtOnce;
  }
  const double seconds = Seconds(Clock::now() - begin).count();
  print_line({{"what", "calls"}, {"per_second", static_cast<double>(count) / seconds}});
  return {};
}

Result<double> Session::copy(bool to_device, char* host, std::size_t bytes, int count) {
  const auto begin = Clock::now();
  for (int i = 0; i < count; ++i) {
    GPURUN_RETURN_IF_ERROR(checked(to_device ? driver_.to_device(memory_, host, bytes, stream_)
                                             : driver_.from_device(host, memory_, bytes, stream_),
                                   to_device ? "cuMemcpyHtoDAsync" : "cuMemcpyDtoHAsync"));
  }
  GPURUN_RETURN_IF_ERROR(checked(driver_.stream_synchronize(stream_), "cuStreamSynchronize"));
  return Seconds(Clock::now() - begin).count();
}

// A batch of copies grows until it takes a tenth of the time, or ten round trips on a long link. So
// a slow link does not exceed the time by much, and the wait for a batch is a small part of it.
// Copies from the device read only what was written there. Other memory is zero, and zeros are not
// sent. The two kinds of memory take turns, because the number of connections adapts meanwhile.
Status Session::measure_copies(const std::string& way, Seconds time, bool to_device) {
  const std::size_t largest = to_device ? kCopyBytesMax : written_;
  const double enough =
      std::max(0.05 * time.count(), std::min(10 * round_trip_.count(), kBatchSecondsMax));
  std::size_t bytes = kCopyBytesMin;
  int count = 1;
  while (true) {
    const Result<double> took = copy(to_device, pinned_, bytes, count);
    if (!took.ok()) return took.status();
    if (*took > enough) break;
    if (2 * bytes <= largest) {
      bytes *= 2;
    } else if (count < kCopiesAtOnceMax) {
      count *= 2;
    } else {
      break;
    }
  }
  if (to_device) written_ = bytes;
  struct Kind {
    const char* name;
    char* host;
    double seconds, copied;
  };
  Kind kinds[] = {{"_pinned", pinned_, 0, 0}, {"_pageable", pageable_.get(), 0, 0}};
  while (kinds[0].seconds + kinds[1].seconds < time.count()) {
    for (Kind& kind : kinds) {
      const Result<double> took = copy(to_device, kind.host, bytes, count);
      if (!took.ok()) return took.status();
      kind.seconds += *took;
      kind.copied += static_cast<double>(bytes) * count;
    }
  }
  for (const Kind& kind : kinds) {
    print_line({{"what", way + kind.name}, {"gb_per_second", kind.copied / kind.seconds / 1e9}});
  }
  return {};
}

}  // namespace

Percentiles percentiles(std::vector<double> samples) {
  Percentiles found;
  if (samples.empty()) return found;
  std::sort(samples.begin(), samples.end());
  const auto rank = [&](double part) {
    const auto at = static_cast<std::size_t>(std::ceil(part * static_cast<double>(samples.size())));
    return samples[std::clamp<std::size_t>(at, 1, samples.size()) - 1];
  };
  found.p50 = rank(0.5);
  found.p90 = rank(0.9);
  found.p99 = rank(0.99);
  found.max = samples.back();
  found.count = samples.size();
  return found;
}

Status measure_session(std::chrono::milliseconds time) {
  Session session;
  GPURUN_RETURN_IF_ERROR(session.open());
  return session.measure(time);
}

}  // namespace gpurun::tools
