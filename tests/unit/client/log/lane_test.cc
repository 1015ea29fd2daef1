// Lanes: ten thousand short threads leave nothing behind, and a new thread inherits nothing from an
// ended one.
#include "client/log/lane.h"

#include <gtest/gtest.h>

#include <thread>

#include "client/log/lane_registry.h"
#include "protocol/limits.h"

namespace gpurun::client {
namespace {

TEST(Lane, ShortThreadsReuseLanes) {
  Lane* own = Lane::current();
  ASSERT_NE(own, nullptr);
  EXPECT_EQ(own, Lane::current());
  for (int round = 0; round < 10'000; ++round) {
    std::thread([own] {
      Lane* lane = Lane::current();
      ASSERT_NE(lane, nullptr);
      EXPECT_NE(lane->id(), own->id());
      EXPECT_EQ(lane->context(), 0u);
      EXPECT_EQ(lane->capture_mode(), CaptureMode::kGlobal);
      lane->push_context(5);
      lane->set_capture_mode(CaptureMode::kRelaxed);
    }).join();
  }
  EXPECT_LE(Lane::peak_count(), 2u);
  EXPECT_EQ(Lane::live_count(), 1u);
}

TEST(Lane, PushesAndPopsContexts) {
  Lane* lane = Lane::current();
  lane->set_context(1);
  lane->push_context(2);
  lane->set_context(3);
  lane->push_context(1);
  EXPECT_EQ(lane->pop_context(), 1u);
  EXPECT_EQ(lane->pop_context(), 3u);
  EXPECT_EQ(lane->pop_context(), 1u);
  EXPECT_EQ(lane->pop_context(), 0u);
}

// One thread that takes lanes repeatedly stands for many threads. The test comes last, because the
// lanes are never returned.
TEST(Lane, ThreadBeyondLimitGetsNoLane) {
  std::thread([] {
    while (Lane::live_count() < limits::kLanesMax) ASSERT_NE(LaneRegistry::take(), nullptr);
    EXPECT_EQ(Lane::peak_count(), limits::kLanesMax);
    EXPECT_NE(lane_of_id(limits::kLanesMax - 1), nullptr);
    EXPECT_EQ(lane_of_id(limits::kLanesMax), nullptr);
    EXPECT_EQ(LaneRegistry::take(), nullptr);
    EXPECT_EQ(Lane::current(), nullptr);  // The program then sees CUDA_ERROR_OUT_OF_MEMORY.
    EXPECT_EQ(Lane::current(), nullptr);
  }).join();
  EXPECT_EQ(Lane::live_count(), limits::kLanesMax - 1);  // That thread's last lane is free again.
  std::thread([] { EXPECT_NE(Lane::current(), nullptr); }).join();
}

}  // namespace
}  // namespace gpurun::client
