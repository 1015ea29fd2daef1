// Engine bench: launch rate of the emulated device's engine alone, and the cost of the points where
// threads wait. Prints one line for each measurement, or JSON with --json. Asserts nothing.
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>

#include "emulated/engine/engine.h"

namespace {

using namespace gpurun::emulated;  // NOLINT: a program of its own.
using Clock = std::chrono::steady_clock;

constexpr int kRounds = 100;

void empty_kernel(ThreadContext*) {}

void barrier_kernel(ThreadContext* thread) {
  for (int i = 0; i < kRounds; ++i) runtime_functions().barrier_sync(thread, 0, 0);
}

void copy_lane(std::uint32_t present, const WarpSlot* slots) {
  for (std::uint32_t lane = 0; lane < 32; ++lane) {
    if ((present >> lane & 1) != 0) slots[lane].out[0] = slots[lane ^ 1].in[0];
  }
}

void shuffle_kernel(ThreadContext* thread) {
  std::uint32_t value = thread->thread_linear;
  for (int i = 0; i < kRounds; ++i) {
    runtime_functions().warp(thread, 1, ~0u, copy_lane, &value, &value);
  }
}

LaunchRequest launch(KernelFunction function, std::uint32_t blocks, std::uint32_t threads) {
  LaunchRequest request;
  request.function = function;
  request.name = "bench";
  request.grid = {blocks, 1, 1};
  request.block = {threads, 1, 1};
  return request;
}

// Nanoseconds of one call of `body`, the best of five.
double best(const std::function<void()>& body) {
  double least = 1e30;
  for (int i = 0; i < 5; ++i) {
    const auto start = Clock::now();
    body();
    least = std::min(least, std::chrono::duration<double, std::nano>(Clock::now() - start).count());
  }
  return least;
}

bool json = false;
bool first = true;
void line(const char* name, double value, const char* unit) {
  if (json) {
    std::printf("%s\n  \"%s (%s)\": %.3f", first ? "{" : ",", name, unit, value);
  } else {
    std::printf("%-48s %12.2f %s\n", name, value, unit);
  }
  first = false;
}

struct Chain {
  Engine* engine;
  LaunchRequest request;
  int left;
  std::mutex mutex;
  std::condition_variable cv;
  bool over = false;

  void next() {
    engine->submit(request, [this](const GridResult&) {
      if (--left > 0) {
        next();
        return;
      }
      std::lock_guard lock(mutex);
      over = true;
      cv.notify_all();
    });
  }
  void wait() {
    std::unique_lock lock(mutex);
    cv.wait(lock, [this] { return over; });
  }
};

}  // namespace

int main(int argc, char** argv) {
  json = argc > 1 && std::strcmp(argv[1], "--json") == 0;
  EngineOptions options;
  auto created = Engine::create(options);
  if (!created.ok()) return 1;
  Engine& engine = **created;

  const LaunchRequest one = launch(empty_kernel, 1, 1);
  line("empty grid, run()", best([&] {
                              for (int i = 0; i < 20000; ++i) engine.run(one);
                            }) / 20000,
       "ns each");
  const LaunchRequest warp = launch(empty_kernel, 4, 32);
  line("4 blocks of 32 threads, run()", best([&] {
                                          for (int i = 0; i < 20000; ++i) engine.run(warp);
                                        }) / 20000,
       "ns each");
  line("empty grid, submitted by the one before", best([&] {
                                                    Chain chain{&engine, one, 20000, {}, {}};
                                                    chain.next();
                                                    chain.wait();
                                                  }) / 20000,
       "ns each");
  line("empty grid, submit and wait for it", best([&] {
                                               for (int i = 0; i < 500; ++i) {
                                                 Chain chain{&engine, one, 1, {}, {}};
                                                 chain.next();
                                                 chain.wait();
                                               }
                                             }) / 500,
       "ns each");
  const LaunchRequest large = launch(empty_kernel, 4096, 256);
  line("1 Mi empty threads", best([&] { engine.run(large); }) / (4096 * 256), "ns a thread");
  for (const std::uint32_t threads : {32u, 256u, 1024u}) {
    char name[64];
    std::snprintf(name, sizeof name, "barrier, block of %u", threads);
    line(name, best([&] { engine.run(launch(barrier_kernel, 1, threads)); }) / kRounds / threads,
         "ns a thread");
  }
  line("warp shuffle", best([&] { engine.run(launch(shuffle_kernel, 1, 256)); }) / kRounds / 8,
       "ns a warp");
  if (json) std::printf("\n}\n");
  return 0;
}
