// Question: how many launches does the driver take before a launch blocks? The server must stay
// below this depth, because no API reports a full queue.
#include <atomic>

#include "questions/held_stream.h"
#include "questions/questions.h"

namespace gpurun::probe {
namespace {

constexpr int kLaunchesMax = 40'000;

// Launches empty kernels into `stream` until a launch does not return. The count then stops, and
// `*launched` is the depth.
bool fill(const Stage& stage, CUstream stream, std::atomic<int>* launched,
          const std::function<void()>& release) {
  std::atomic<bool> stop = false;
  bool blocked = false;
  // The watcher below releases the kernel once the count has not changed for half a second.
  returns_within(
      stage, 1,
      [&stage, stream, launched, &stop] {
        while (*launched < kLaunchesMax && !stop) {
          must(CU(stage.driver, cuLaunchKernel)(stage.empty, 1, 1, 1, 1, 1, 1, 0, stream, nullptr,
                                                nullptr),
               "cuLaunchKernel");
          ++*launched;
        }
      },
      [launched, &release, &stop, &blocked] {
        int last = -1;
        while (*launched != last && *launched < kLaunchesMax) {
          last = *launched;
          const timespec pause{0, 500'000'000};
          nanosleep(&pause, nullptr);
        }
        blocked = *launched < kLaunchesMax;
        if (!blocked) return;
        stop = true;
        release();
      });
  return blocked;
}

}  // namespace

void ask_launch_queue(const std::string& libcuda, Answer* answer) {
  const Driver driver(libcuda);
  Stage stage(driver, Level::kWork);
  {
    HeldStream held(stage, stage.stream);
    std::atomic<int> launched = 0;
    bool released = false;
    int depth = 0;
    const bool blocked = fill(stage, stage.stream, &launched, [&] {
      depth = launched;
      released = true;
      held.release();
    });
    if (!released) held.release();
    must(CU(driver, cuStreamSynchronize)(stage.stream), "cuStreamSynchronize");
    answer->fact("depth_of_one_stream",
                 blocked ? Json::integer(depth) : Json::text("no limit below 40000"));
  }
  // A second stream while the first one is full: does each stream have a queue, or do they share
  // one?
  CUstream second = nullptr;
  must(CU(driver, cuStreamCreate)(&second, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  HeldStream held(stage, stage.stream);
  std::atomic<int> launched = 0;
  std::atomic<int> on_second = 0;
  bool released = false;
  bool second_returned = true;
  const bool blocked = fill(stage, stage.stream, &launched, [&] {
    released = true;
    second_returned = returns_within(
        stage, 500,
        [&] {
          must(CU(driver, cuLaunchKernel)(stage.empty, 1, 1, 1, 1, 1, 1, 0, second, nullptr,
                                          nullptr),
               "cuLaunchKernel");
          ++on_second;
        },
        [&held] { held.release(); });
    if (second_returned) held.release();
  });
  if (!released) held.release();
  must(CU(driver, cuCtxSynchronize)(), "cuCtxSynchronize");
  answer->fact("second_stream_takes_a_launch_while_the_first_is_full",
               blocked ? Json::boolean(second_returned) : Json::null());
}

}  // namespace gpurun::probe
