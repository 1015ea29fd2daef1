// StepDevice: a driver with streams that do nothing until the test allows it. Copies, fills and
// events happen in run(). There is one device at a time, in `device()`.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "server/driver/driver_functions.h"

namespace gpurun::server {

class StepDevice {
 public:
  static StepDevice& device() {
    static StepDevice one;
    return one;
  }

  void reset() {
    const std::lock_guard lock(mutex_);
    queues_.clear();
    pending_.clear();
    streams_ = events_ = 0;
    failure_ = 0;
    longest_ = 0;
  }
  // Runs the queued work of `stream`. Streams are numbered from 1 in the order of their creation. 0
  // is the legacy stream.
  void run(std::uintptr_t stream) {
    const std::lock_guard lock(mutex_);
    auto& queue = queues_[stream];
    for (; !queue.empty(); queue.pop_front()) queue.front()();
    changed_.notify_all();
  }
  // From now on every wait returns `result`, as after a fault on the device.
  void fail(int result) {
    const std::lock_guard lock(mutex_);
    failure_ = result;
    changed_.notify_all();
  }
  std::size_t queued(std::uintptr_t stream) {
    const std::lock_guard lock(mutex_);
    return queues_[stream].size();
  }
  std::size_t longest_queue() {
    const std::lock_guard lock(mutex_);
    return longest_;
  }

  static DriverFunctions functions() {
    DriverFunctions driver;
    driver.cuCtxSetCurrent = [](void*) { return 0; };
    driver.cuThreadExchangeStreamCaptureMode = [](int*) { return 0; };
    driver.cuStreamCreate = [](void** stream, unsigned) { return device().create(stream); };
    driver.cuStreamIsCapturing = [](void*, int* status) {
      *status = 0;
      return 0;
    };
    driver.cuStreamQuery = [](void* stream) {
      return device().queued(number_of(stream)) == 0 ? 0 : kNotReady;
    };
    driver.cuStreamSynchronize = [](void* stream) { return device().drain(number_of(stream)); };
    driver.cuStreamWaitEvent = [](void*, void*, unsigned) { return 0; };
    driver.cuEventCreate = [](void** event, unsigned) { return device().create_event(event); };
    driver.cuEventRecord = [](void* event, void* stream) { return device().record(event, stream); };
    driver.cuEventQuery = [](void* event) { return device().query(event); };
    driver.cuEventSynchronize = [](void* event) { return device().wait(event); };
    driver.cuMemcpyHtoDAsync = [](std::uint64_t to, const void* from, std::size_t bytes, void* s) {
      if (to == 0) return kInvalidValue;
      return device().push(s, [=] { std::memcpy(reinterpret_cast<void*>(to), from, bytes); });
    };
    driver.cuMemcpyDtoHAsync = [](void* to, std::uint64_t from, std::size_t bytes, void* s) {
      if (from == 0) return kInvalidValue;
      return device().push(s, [=] { std::memcpy(to, reinterpret_cast<const void*>(from), bytes); });
    };
    driver.cuMemsetD8Async = [](std::uint64_t to, unsigned char value, std::size_t bytes, void* s) {
      return device().push(s, [=] { std::memset(reinterpret_cast<void*>(to), value, bytes); });
    };
    return driver;
  }

  // The values 0 and 1 name the legacy stream (cuda.h). Values of tests are their own numbers.
  static constexpr std::uintptr_t kStreams = 0x1000;
  static std::uintptr_t number_of(const void* stream) {
    const auto value = reinterpret_cast<std::uintptr_t>(stream);
    if (value > kStreams) return value - kStreams;
    return value == 1 ? 0 : value;
  }

  static constexpr int kInvalidValue = 1;
  static constexpr int kNotReady = 600;

 private:
  static std::uintptr_t number(const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer);
  }
  int create(void** stream) {
    const std::lock_guard lock(mutex_);
    *stream = reinterpret_cast<void*>(kStreams + ++streams_);
    return 0;
  }
  int create_event(void** event) {
    const std::lock_guard lock(mutex_);
    *event = reinterpret_cast<void*>(0x1000 + ++events_);
    return 0;
  }
  int push(void* stream, std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    auto& queue = queues_[number_of(stream)];
    queue.push_back(std::move(work));
    longest_ = std::max(longest_, queue.size());
    return 0;
  }
  int record(void* event, void* stream) {
    const std::uintptr_t of = number(event);
    {
      const std::lock_guard lock(mutex_);
      ++pending_[of];
    }
    return push(stream, [this, of] { --pending_[of]; });
  }
  int query(void* event) {
    const std::lock_guard lock(mutex_);
    if (failure_ != 0) return failure_;
    return pending_[number(event)] == 0 ? 0 : kNotReady;
  }
  int wait(void* event) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(20),
                      [&] { return failure_ != 0 || pending_[number(event)] == 0; });
    return failure_;
  }
  int drain(std::uintptr_t stream) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(20),
                      [&] { return failure_ != 0 || queues_[stream].empty(); });
    return failure_;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uintptr_t, std::deque<std::function<void()>>> queues_;
  std::map<std::uintptr_t, int> pending_;
  std::uintptr_t streams_ = 0;
  std::uintptr_t events_ = 0;
  std::size_t longest_ = 0;
  int failure_ = 0;
};

}  // namespace gpurun::server
