// Polls of events and streams. `polls IMAGE count ROUNDS` polls an event while a kernel runs, and
// prints the number of polls. So do `stream`, `own` and `legacy` with a created, the per-thread and
// the legacy stream. `polls IMAGE ROUNDS` shows that a poll reports at least what the program
// already knows. Its sources are bytes that have arrived (while it polls, or does other work), a
// function that ran, a wait for another stream, another event, and a copy that has returned.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "driver_test.h"

namespace {

bool is_complete(CUevent event) {
  const CUresult result = cuEventQuery(event);
  if (result != CUDA_ERROR_NOT_READY) MUST(result);
  return result == CUDA_SUCCESS;
}

void count_polls(const Device& device, int rounds) {
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr memory = Device::memory(4);
  unsigned long polls = 0;
  for (int i = 0; i < rounds; ++i) {
    const CUevent event = Device::event(CU_EVENT_DISABLE_TIMING);
    device.launch_linger(stream, memory, 1);
    MUST(cuEventRecord(event, stream));
    do ++polls;
    while (!is_complete(event));
    MUST(cuEventDestroy(event));
  }
  std::printf("polls: %lu\n", polls);
}

bool is_complete(CUstream stream) {
  const CUresult result = cuStreamQuery(stream);
  if (result != CUDA_ERROR_NOT_READY) MUST(result);
  return result == CUDA_SUCCESS;
}

void count_stream_polls(const Device& device, CUstream stream, int rounds) {
  const CUdeviceptr memory = Device::memory(4);
  unsigned long polls = 0;
  for (int i = 0; i < rounds; ++i) {
    device.launch_linger(stream, memory, 1);
    do ++polls;
    while (!is_complete(stream));
    EXPECT(is_complete(stream));
  }
  std::printf("polls: %lu\n", polls);
}

// Reads a value that was written outside of CUDA, as a program polls it. ThreadSanitizer ignores
// it, because only the value orders the read after the write, which a system call makes.
__attribute__((no_sanitize("thread"))) bool holds(const volatile unsigned* memory, unsigned value) {
  const bool found = *memory == value;
  if (found) __atomic_thread_fence(__ATOMIC_ACQUIRE);
  return found;
}

class Knowledge {
 public:
  explicit Knowledge(const Device& device) : device_(device) {
    std::memset(seen_, 0, 4);
    EXPECT(is_complete(event_));  // Never recorded, so it is complete.
  }
  void by_bytes() {
    const unsigned value = work();
    MUST(cuMemcpyDtoHAsync(seen_, memory_, 4, one_));
    while (!holds(seen_, value)) poll();
    EXPECT(is_complete(event_));
  }
  void by_bytes_beside_other_work() {
    const unsigned value = work();
    MUST(cuMemcpyDtoHAsync(seen_, memory_, 4, one_));
    while (!holds(seen_, value)) device_.launch_fill(two_, other_, 1, 5);
    EXPECT(is_complete(event_));
    MUST(cuStreamSynchronize(two_));
  }
  void by_a_function() {
    std::atomic<bool> ran{false};
    work();
    const CUhostFn run = [](void* user) { *static_cast<std::atomic<bool>*>(user) = true; };
    MUST(cuLaunchHostFunc(one_, run, &ran));
    while (!ran) poll();
    EXPECT(is_complete(event_));
  }
  void by_a_wait_elsewhere() {
    work();
    MUST(cuStreamWaitEvent(two_, event_, 0));
    poll();
    MUST(cuStreamSynchronize(two_));
    EXPECT(is_complete(event_));
  }
  void by_another_event() {
    work();
    MUST(cuStreamWaitEvent(two_, event_, 0));
    MUST(cuEventRecord(later_, two_));
    while (!is_complete(later_)) {
    }
    EXPECT(is_complete(event_));
    float time = -1;
    MUST(cuEventElapsedTime(&time, event_, later_));
    EXPECT(time >= 0);
  }
  void by_a_copy_that_has_returned() {
    work();
    const unsigned zero = 0;
    MUST(cuMemcpyHtoD(other_, &zero, 4));  // In the legacy stream, after all blocking ones.
    EXPECT(is_complete(event_));
  }
  void by_a_wait_that_has_returned() {
    work();
    MUST(cuStreamSynchronize(one_));
    EXPECT(is_complete(event_));
    MUST(cuStreamSynchronize(two_));
    const unsigned value = 3;
    MUST(cuMemcpyHtoDAsync(other_, &value, 4, two_));
    MUST(cuEventRecord(later_, two_));
    MUST(cuStreamSynchronize(two_));
    EXPECT(is_complete(later_));
  }

 private:
  unsigned work() {
    device_.launch_fill(one_, memory_, 1, ++value_);
    MUST(cuEventRecord(event_, one_));
    return value_;
  }
  void poll() { static_cast<void>(is_complete(event_)); }

  const Device& device_;
  const CUstream one_ = Device::stream(CU_STREAM_DEFAULT);
  const CUstream two_ = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUevent event_ = Device::event(), later_ = Device::event();
  const CUdeviceptr memory_ = Device::memory(4), other_ = Device::memory(4);
  unsigned* const seen_ = Device::pinned(4);
  unsigned value_ = 0;
};

// What shows that a stream is complete, to the thread that polls it or to another.
class StreamKnowledge {
 public:
  explicit StreamKnowledge(const Device& device) : device_(device) {
    EXPECT(is_complete(one_));  // Never used.
  }
  // The function is the last work, but its own end comes after it. So another stream's runs behind.
  void by_a_function() {
    std::atomic<bool> ran{false};
    work();
    MUST(cuStreamWaitEvent(two_, event_, 0));
    const CUhostFn run = [](void* user) { *static_cast<std::atomic<bool>*>(user) = true; };
    MUST(cuLaunchHostFunc(two_, run, &ran));
    while (!ran) poll();
    EXPECT(is_complete(one_));
    MUST(cuStreamSynchronize(two_));
  }
  void by_bytes() {
    const unsigned value = work();
    MUST(cuStreamWaitEvent(two_, event_, 0));
    MUST(cuMemcpyDtoHAsync(seen_, memory_, 4, two_));
    while (!holds(seen_, value)) poll();
    EXPECT(is_complete(one_));
    MUST(cuStreamSynchronize(two_));
  }
  void by_a_wait_elsewhere() {
    work();
    MUST(cuStreamWaitEvent(two_, event_, 0));
    poll();
    MUST(cuStreamSynchronize(two_));
    EXPECT(is_complete(one_));
  }
  void by_an_event() {
    work();
    poll();
    while (!is_complete(event_)) poll();
    EXPECT(is_complete(one_));
  }
  void by_a_copy_that_has_returned() {
    work();
    poll();
    const unsigned zero = 0;
    MUST(cuMemcpyHtoD(other_, &zero, 4));  // In the legacy stream, after all blocking ones.
    EXPECT(is_complete(one_));
  }
  void by_another_thread() {
    work();
    poll();
    std::thread([this] {
      MUST(cuCtxSetCurrent(device_.context));
      MUST(cuStreamSynchronize(one_));
    }).join();
    EXPECT(is_complete(one_));
  }
  void by_a_free() {
    const CUdeviceptr more = Device::memory(4);
    work();
    poll();
    MUST(cuMemFree(more));
    EXPECT(is_complete(one_));
  }
  void by_itself() {
    work();
    while (!is_complete(one_)) {
    }
    EXPECT(is_complete(one_));
    EXPECT(Device::read(memory_) == value_);
    // Not complete again: the answer must not be the old one.
    MUST(cuMemsetD32(other_, 0, 1));
    MUST(cuStreamSynchronize(CU_STREAM_LEGACY));  // two_ does not wait for it.
    device_.launch_wait(one_, other_, memory_);
    for (int i = 0; i < 100; ++i) EXPECT(!is_complete(one_));
    MUST(cuMemsetD32Async(other_, 1, 1, two_));
    MUST(cuStreamSynchronize(one_));
    EXPECT(is_complete(one_));
  }
  void by_own_stream() {
    device_.launch_fill(CU_STREAM_PER_THREAD, memory_, 1, ++value_);
    while (!is_complete(CU_STREAM_PER_THREAD)) {
    }
    EXPECT(is_complete(CU_STREAM_PER_THREAD));
    EXPECT(Device::read(memory_) == value_);
  }

 private:
  unsigned work() {
    device_.launch_fill(one_, memory_, 1, ++value_);
    MUST(cuEventRecord(event_, one_));
    return value_;
  }
  void poll() { static_cast<void>(is_complete(one_)); }

  const Device& device_;
  const CUstream one_ = Device::stream(CU_STREAM_DEFAULT);
  const CUstream two_ = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUevent event_ = Device::event();
  const CUdeviceptr memory_ = Device::memory(4), other_ = Device::memory(4);
  unsigned* const seen_ = Device::pinned(4);
  unsigned value_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  EXPECT(argc == 3 || argc == 4);
  end_after(200);
  const Device device(argv[1]);
  const int rounds = std::atoi(argv[argc - 1]);
  if (argc == 4 && std::strcmp(argv[2], "count") == 0) {
    count_polls(device, rounds);
  } else if (argc == 4 && std::strcmp(argv[2], "legacy") == 0) {
    count_stream_polls(device, CU_STREAM_LEGACY, rounds);
  } else if (argc == 4 && std::strcmp(argv[2], "own") == 0) {
    count_stream_polls(device, CU_STREAM_PER_THREAD, rounds);
  } else if (argc == 4) {
    count_stream_polls(device, Device::stream(CU_STREAM_NON_BLOCKING), rounds);
  } else {
    Knowledge knowledge(device);
    for (int i = 0; i < rounds; ++i) {
      knowledge.by_bytes();
      knowledge.by_bytes_beside_other_work();
      knowledge.by_a_function();
      knowledge.by_a_wait_elsewhere();
      knowledge.by_another_event();
      knowledge.by_a_copy_that_has_returned();
      knowledge.by_a_wait_that_has_returned();
    }
    StreamKnowledge streams(device);
    for (int i = 0; i < rounds / 10; ++i) {
      streams.by_a_function();
      streams.by_bytes();
      streams.by_a_wait_elsewhere();
      streams.by_an_event();
      streams.by_a_copy_that_has_returned();
      streams.by_another_thread();
      streams.by_a_free();
      if (i % 10 == 0) streams.by_itself();
      streams.by_own_stream();
    }
  }
  std::puts("PASSED");
  return 0;
}
