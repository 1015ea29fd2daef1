// BriefSpin: a spinning thread spins only briefly, stops when spinning never pays, and yields the
// processor to other threads that want it.
#include "base/brief_spin.h"

#include <gtest/gtest.h>

namespace gpurun {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::nanoseconds;

// Time passes only when a thread yields, by the amount that the test sets.
struct PlannedProcessor {
  struct Clock {
    using duration = nanoseconds;
    using time_point = std::chrono::time_point<std::chrono::steady_clock, nanoseconds>;
  };
  static inline Clock::time_point time{};
  static inline nanoseconds away{1000};
  static inline int yields = 0;
  static Clock::time_point now() noexcept { return time; }
  static void yield() noexcept {
    ++yields;
    time += away;
  }
};
using PlannedSpin = BasicBriefSpin<PlannedProcessor>;

class BriefSpinTest : public ::testing::Test {
 protected:
  void SetUp() override {
    PlannedProcessor::away = microseconds(1);
    PlannedProcessor::yields = 0;
  }
  // Other threads keep the processor once.
  static void kept(PlannedSpin& spin) {
    PlannedProcessor::away = PlannedSpin::kKept;
    EXPECT_FALSE(spin.wait([] { return false; }));
    PlannedProcessor::away = microseconds(1);
  }
  // Returns the number of consecutive waits without a try. The try after them succeeds.
  static int waits_without_a_try(PlannedSpin& spin) {
    for (int waits = 0; waits < 100'000; ++waits) {
      bool looked = false;
      if (spin.wait([&looked] { return looked = true; })) return waits;
      EXPECT_FALSE(looked);
    }
    return -1;
  }
};

TEST_F(BriefSpinTest, ReturnsTrueWhenConditionHolds) {
  PlannedSpin spin{hours(1)};
  int looks = 0;
  EXPECT_TRUE(spin.wait([&looks] { return ++looks == 3; }));
  EXPECT_EQ(looks, 3);
  EXPECT_EQ(PlannedProcessor::yields, 2) << "the other end may need the processor";
}

TEST_F(BriefSpinTest, ReturnsFalseAfterSpan) {
  PlannedSpin spin{microseconds(30)};
  int looks = 0;
  EXPECT_FALSE(spin.wait([&looks] { return ++looks, false; }));
  EXPECT_EQ(looks, 30);
}

TEST_F(BriefSpinTest, ZeroSpanDisablesSpinning) {
  PlannedSpin spin{nanoseconds(0)};
  EXPECT_FALSE(spin.wait([] { return true; }));
}

TEST_F(BriefSpinTest, StopsSpinningAfterRepeatedMisses) {
  PlannedSpin spin;
  int looks = 0;
  const auto never = [&looks] { return ++looks, false; };
  for (int i = 0; i < PlannedSpin::kMissesMax; ++i) {
    EXPECT_FALSE(spin.wait(never));
    spin.slept(hours(1));
  }
  looks = 0;
  EXPECT_FALSE(spin.wait(never));
  EXPECT_EQ(looks, 0) << "it looks on although its waits are long";
}

TEST_F(BriefSpinTest, ResumesSpinningAfterShortSleep) {
  PlannedSpin spin{microseconds(1)};
  for (int i = 0; i < PlannedSpin::kMissesMax; ++i) EXPECT_FALSE(spin.wait([] { return false; }));
  EXPECT_FALSE(spin.wait([] { return true; }));
  spin.slept(nanoseconds(1500));
  EXPECT_TRUE(spin.wait([] { return true; }));
}

TEST_F(BriefSpinTest, HitResetsMissCount) {
  PlannedSpin spin;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < PlannedSpin::kMissesMax - 1; ++i) {
      EXPECT_FALSE(spin.wait([] { return false; }));
    }
    EXPECT_TRUE(spin.wait([] { return true; }));
  }
}

TEST_F(BriefSpinTest, BacksOffLongerEachTimeProcessorIsTaken) {
  PlannedSpin spin;
  for (int rest = PlannedSpin::kRestMin; rest < PlannedSpin::kRestMax; rest *= 2) {
    kept(spin);
    EXPECT_EQ(waits_without_a_try(spin), rest);
  }
  for (int i = 0; i < 2; ++i) {
    kept(spin);
    EXPECT_EQ(waits_without_a_try(spin), PlannedSpin::kRestMax) << "it must try again some day";
  }
}

TEST_F(BriefSpinTest, ChecksConditionAfterLongYield) {
  PlannedSpin spin;
  PlannedProcessor::away = PlannedSpin::kKept;
  int looks = 0;
  EXPECT_TRUE(spin.wait([&looks] { return ++looks == 2; }));
}

TEST_F(BriefSpinTest, ConsecutiveHitsResetBackoff) {
  PlannedSpin spin;
  kept(spin);
  EXPECT_EQ(waits_without_a_try(spin), PlannedSpin::kRestMin);
  for (int i = 0; i < PlannedSpin::kCalm; ++i) EXPECT_TRUE(spin.wait([] { return true; }));
  kept(spin);
  EXPECT_EQ(waits_without_a_try(spin), PlannedSpin::kRestMin);
}

}  // namespace
}  // namespace gpurun
