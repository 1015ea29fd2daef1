// Lanes: ten thousand short threads grow nothing, and a new thread starts with nothing of a dead
// one's.
#include "client/lane.h"

#include <gtest/gtest.h>

#include <thread>

namespace gpurun::client {
namespace {

TEST(Lane, ShortThreadsGrowNothing) {
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

TEST(Lane, ContextStack) {
  Lane* lane = Lane::current();
  lane->set_context(1);
  lane->push_context(2);
  lane->set_context(3);
  lane->push_context(1);
  lane->forget_context(1);
  EXPECT_EQ(lane->pop_context(), 3u);
  EXPECT_EQ(lane->pop_context(), 0u);
}

}  // namespace
}  // namespace gpurun::client
