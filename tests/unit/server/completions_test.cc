// What settle() promises: when it returns, all that was complete has been told, whoever tells it.
#include "server/worker/completions.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/server/step_device.h"

namespace gpurun::server {
namespace {

// An end that begins, and goes on when the test lets it.
struct SlowEnd {
  std::promise<void> begun, let_go;
  std::atomic<bool> over{false};

  Completions::Ended ended() {
    return [this](int result) {
      EXPECT_EQ(result, 0);
      begun.set_value();
      let_go.get_future().wait();
      over = true;
    };
  }
};

TEST(Completions, WhatAnotherThreadTellsIsWaitedForAlsoWhenTheHelperHasComeToIt) {
  StepDevice& device = StepDevice::device();
  device.reset();
  const DriverFunctions driver = StepDevice::functions();
  void* stream = nullptr;
  ASSERT_EQ(driver.cuStreamCreate(&stream, 0), 0);

  SlowEnd slow;
  std::thread other;
  std::optional<Parking> parking(std::in_place);
  Completions completions(driver, *parking, ~std::uint64_t{0});
  std::promise<void> helper_goes_on;
  // The helper has told the first end; before it goes on to the second, another thread tells that.
  completions.set_told([&] {
    if (other.joinable()) return;
    other = std::thread([&] { completions.settle(); });
    slow.begun.get_future().wait();
    helper_goes_on.set_value();
  });
  ASSERT_EQ(completions.after(nullptr, stream, [](int) {}), 0);
  ASSERT_EQ(completions.after(nullptr, stream, slow.ended()), 0);
  device.run(1);
  helper_goes_on.get_future().wait();

  std::atomic<bool> early{false};
  std::thread settler([&] {
    do {
      completions.settle();
      if (!slow.over) early = true;
    } while (!slow.over && !early);
  });
  // Time for the helper to do what it must not: to forget the end that is being told.
  for (int i = 0; i < 10'000 && !early; ++i) std::this_thread::yield();
  slow.let_go.set_value();
  settler.join();
  other.join();
  completions.stop();
  parking.reset();  // The helper has returned.
  EXPECT_FALSE(early) << "settle() came back while an end that is complete was being told";
}

// Who waits for a copy alone hears of it from the thread that looked, and of those before it, whose
// helper still sleeps, too.
TEST(Completions, AnAwaitedEndThatComesSoonIsToldHereBehindThoseBeforeIt) {
  StepDevice& device = StepDevice::device();
  device.reset();
  DriverFunctions driver = StepDevice::functions();
  static std::promise<void>* asleep = nullptr;  // Of the helper's, which sleeps on.
  std::promise<void> wakes;
  asleep = &wakes;
  driver.cuEventSynchronize = [](void* event) {
    static thread_local bool once = false;
    if (StepDevice::functions().cuEventQuery(event) == 0) return 0;
    if (!std::exchange(once, true)) asleep->get_future().wait();
    return 0;
  };
  void* stream = nullptr;
  ASSERT_EQ(driver.cuStreamCreate(&stream, 0), 0);

  std::optional<Parking> parking(std::in_place);
  Completions completions(driver, *parking, ~std::uint64_t{0});
  completions.set_soon([&](const std::function<bool()>& ready) {
    if (ready()) return true;
    device.run(1);
    return ready();
  });
  std::vector<int> told;
  const auto end = [&told](int which) { return [&told, which](int) { told.push_back(which); }; };
  ASSERT_EQ(completions.after(nullptr, stream, end(1)), 0);
  EXPECT_TRUE(told.empty());
  ASSERT_EQ(completions.after(nullptr, stream, end(2), true), 0);
  EXPECT_EQ(told, (std::vector<int>{1, 2}));
  wakes.set_value();
  completions.stop();
  parking.reset();
  EXPECT_EQ(told, (std::vector<int>{1, 2}));
}

}  // namespace
}  // namespace gpurun::server
