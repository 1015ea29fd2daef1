// Driver API: handover of a buffer between two threads, ROUNDS times. The owner lets the device add
// one to each value, on its own stream. It hands over by a mutex (after a wait for the device or a
// query), by an event that the other's stream waits for, or by a stream that both use. A copy from
// pageable or pinned memory, small or large, may come in between. The buffer then has the values
// that the thread was told. No thread may find a value of an earlier turn.
#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "driver_test.h"

namespace {

constexpr unsigned kCount = 40'000;  // Longer than one bulk chunk.
enum Way { kStreamWait, kEventWait, kEventAsked, kEventOfStream, kSameStream, kCopiedBack, kWays };
constexpr const char* kNames[] = {"a stream's wait", "an event's wait", "an event's state",
                                  "an event",        "the same stream", "a copy back"};

struct Shared {
  const Device& device;
  const unsigned rounds;
  CUdeviceptr values;
  CUstream streams[2], common;
  CUevent events[2];
  std::mutex mutex;
  std::condition_variable changed;
  unsigned turn = 0;      // The mutex guards this and the members below.
  unsigned expected = 0;  // Each value after the enqueued work.
  Way way = kStreamWait;  // The way of the handover.
};

void check(const unsigned* got, unsigned count, const Shared& shared) {
  for (unsigned i = 0; i < count; ++i) {
    if (got[i] == shared.expected) continue;
    std::printf("FAILED: turn %u, after %s: value %u is %u, not %u\n", shared.turn,
                kNames[shared.way], i, got[i], shared.expected);
    std::exit(1);
  }
}

class Player {
 public:
  Player(Shared& shared, unsigned number)
      : shared_(shared), number_(number), random_(2026 + number), own_(shared.streams[number]) {
    pinned_ = Device::pinned(kCount * 4);
    pageable_.resize(kCount);
  }

  void play() {
    MUST(cuCtxSetCurrent(shared_.device.context));
    for (;;) {
      std::unique_lock<std::mutex> lock(shared_.mutex);
      shared_.changed.wait(lock, [&] { return shared_.turn % 2 == number_; });
      if (shared_.turn < shared_.rounds) take_turn();
      const bool last = shared_.turn >= shared_.rounds;
      ++shared_.turn;
      shared_.changed.notify_all();
      if (last) return;
    }
  }

 private:
  unsigned pick(unsigned count) { return static_cast<unsigned>(random_() % count); }

  void take_turn() {
    CUstream stream = own_;
    if (shared_.way == kEventOfStream) {
      MUST(cuStreamWaitEvent(own_, shared_.events[1 - number_], 0));
    }
    if (shared_.way == kSameStream) stream = shared_.common;
    if (pick(4) == 0) bring_in(stream);
    const unsigned blocks = pick(2) == 0 ? 1 : 8;
    unsigned count = kCount;
    void* arguments[] = {&shared_.values, &count};
    MUST(cuLaunchKernel(shared_.device.pass_on, blocks, 1, 1, 64, 1, 1, 0, stream, arguments,
                        nullptr));
    ++shared_.expected;
    hand_over(stream);
  }

  // Overwrites all values. An old value is detected, and sometimes read.
  void bring_in(CUstream stream) {
    shared_.expected += 1'000;
    const bool synchronous = shared_.way != kEventOfStream && shared_.way != kSameStream;
    // Pinned memory may still be read for an earlier copy.
    const bool pinned = pick(2) == 0;
    if (pinned) MUST(cuStreamSynchronize(stream));
    unsigned* const source = pinned ? pinned_ : pageable_.data();
    for (unsigned i = 0; i < kCount; ++i) source[i] = shared_.expected;
    if (synchronous && pick(2) == 0) {
      MUST(cuMemcpyHtoD(shared_.values, source, kCount * 4));
    } else {
      MUST(cuMemcpyHtoDAsync(shared_.values, source, kCount * 4, stream));
    }
    if (!pinned) std::fill(pageable_.begin(), pageable_.end(), 7u);
  }

  void hand_over(CUstream stream) {
    shared_.way = static_cast<Way>(pick(kWays));
    if (shared_.way == kSameStream && stream != shared_.common) {
      MUST(cuEventRecord(shared_.events[number_], stream));
      MUST(cuStreamWaitEvent(shared_.common, shared_.events[number_], 0));
    } else if (shared_.way != kSameStream) {
      MUST(cuEventRecord(shared_.events[number_], stream));
    }
    if (shared_.way == kStreamWait) MUST(cuStreamSynchronize(stream));
    if (shared_.way == kEventWait) MUST(cuEventSynchronize(shared_.events[number_]));
    if (shared_.way == kEventAsked) {
      while (cuEventQuery(shared_.events[number_]) == CUDA_ERROR_NOT_READY) {
      }
    }
    if (shared_.way == kCopiedBack) {
      const unsigned count = pick(2) == 0 ? 16 : kCount;
      const CUdeviceptr from = shared_.values + (kCount - count) * 4;
      MUST(cuMemcpyDtoHAsync(pinned_, from, count * 4, stream));
      MUST(cuStreamSynchronize(stream));
      check(pinned_, count, shared_);
    }
  }

  Shared& shared_;
  const unsigned number_;
  std::mt19937 random_;
  const CUstream own_;
  unsigned* pinned_ = nullptr;
  std::vector<unsigned> pageable_;
};

}  // namespace

int main(int argc, char** argv) {
  EXPECT(argc == 3);
  const Device device(argv[1]);
  const auto rounds = static_cast<unsigned>(std::atoi(argv[2]));
  Shared shared{device, rounds, Device::memory(kCount * 4), {}, {}, {}, {}, {}};
  for (CUstream* stream : {&shared.streams[0], &shared.streams[1], &shared.common}) {
    *stream = Device::stream(CU_STREAM_NON_BLOCKING);
  }
  for (CUevent& event : shared.events) event = Device::event(CU_EVENT_DISABLE_TIMING);
  MUST(cuMemsetD32(shared.values, 0, kCount));
  MUST(cuCtxSynchronize());
  Player first(shared, 0), second(shared, 1);
  std::thread thread([&] { second.play(); });
  first.play();
  thread.join();
  MUST(cuCtxSynchronize());
  std::vector<unsigned> got(kCount);
  MUST(cuMemcpyDtoH(got.data(), shared.values, kCount * 4));
  check(got.data(), kCount, shared);
  std::printf("%u rounds\nPASSED\n", rounds);
  return 0;
}
