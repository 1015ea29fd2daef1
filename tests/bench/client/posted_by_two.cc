// Two posting threads: the cost for each of the log that both write to. Each posts to its own
// stream at the same time.
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/bench/client/bench.h"

namespace gpurun::bench {
namespace {

constexpr unsigned kThreads = 2;
constexpr int kCalls = 10000;  // Of each thread.
constexpr int kBatch = 250;
constexpr int kLaunches = 50000;
constexpr int kRounds = 5;

// Both threads leave together. A thread that slept would be too late for the other's batch, which
// takes 50 us.
class Start {
 public:
  void wait() {
    const unsigned turn = arrived_.fetch_add(1) / kThreads;
    while (arrived_.load() / kThreads == turn) sched_yield();
  }

 private:
  std::atomic<unsigned> arrived_{0};
};

struct Poster {
  CUstream stream;
  std::vector<double> samples;  // Nanoseconds.
};

template <typename Work>
void both(const Stage& s, Work work) {
  std::array<Poster, kThreads> posters = {Poster{s.stream, {}}, Poster{s.other_stream, {}}};
  std::vector<std::thread> threads;
  for (Poster& poster : posters) {
    threads.emplace_back([&s, &poster, &work] {
      MUST(CU(cuCtxSetCurrent)(s.context));
      std::uint64_t values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
      void* parameters[8];
      for (int i = 0; i < 8; ++i) parameters[i] = &values[i];
      work(poster, [&s, &poster, &parameters] {
        MUST(CU(cuLaunchKernel)(s.empty, 1, 1, 1, 32, 1, 1, 0, poster.stream, parameters, nullptr));
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

void measure_posted_by_two(const Stage& s, Results* results) {
  const double clock = clock_nanoseconds();
  const int calls = results->count(kCalls);
  Row each{"launch, 8 parameters, two threads", "ns", {}};
  Start start;
  std::mutex adding;
  both(s, [&](Poster& poster, const auto& launch) {
    poster.samples.reserve(static_cast<std::size_t>(calls));
    const int unmeasured = calls / 10;
    for (int i = 0; i < unmeasured + calls; ++i) {
      if (i % kBatch == 0) {
        MUST(CU(cuStreamSynchronize)(poster.stream));
        start.wait();
      }
      const Clock::time_point begin = Clock::now();
      launch();
      const Clock::time_point end = Clock::now();
      if (i >= unmeasured)
        poster.samples.push_back(std::max(0.0, nanoseconds(end - begin) - clock));
    }
    const std::lock_guard<std::mutex> lock(adding);
    each.samples.insert(each.samples.end(), poster.samples.begin(), poster.samples.end());
  });
  MUST(CU(cuCtxSynchronize)());
  results->add(std::move(each));

  Row rate{"launches a second, two threads together", "1/s", {}};
  const int launches = results->count(kLaunches);
  for (int round = 0; round < kRounds; ++round) {
    Clock::time_point begin;
    both(s, [&](Poster&, const auto& launch) {
      launch();
      start.wait();
      const Clock::time_point now = Clock::now();
      {
        const std::lock_guard<std::mutex> lock(adding);
        begin = begin == Clock::time_point() ? now : std::min(begin, now);
      }
      for (int i = 0; i < launches; ++i) launch();
    });
    MUST(CU(cuCtxSynchronize)());
    rate.samples.push_back(kThreads * launches * 1e9 / nanoseconds(Clock::now() - begin));
  }
  results->add(std::move(rate));
}

}  // namespace gpurun::bench
