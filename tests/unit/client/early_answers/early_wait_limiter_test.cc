// EarlyWaitLimiter: waits are answered before their completion is reported only while the wire
// explains the delay. A program must not run far ahead of a slow device.
#include "client/early_answers/early_wait_limiter.h"

#include <gtest/gtest.h>

#include <chrono>

namespace gpurun::client {
namespace {

using namespace std::chrono_literals;

class EarlyWaitLimiterTest : public ::testing::Test {
 protected:
  // The answer to a wait now, for a call made `ago`.
  bool answers(std::uint64_t record, EarlyWaitLimiter::Clock::duration ago = 0ms) {
    return pace_.answers(record, now_ - ago, now_);
  }
  // A wait may be ahead by twice the round trip plus the slack.
  static constexpr auto kRoundTrip = 10ms;
  static constexpr auto kBound = 2 * kRoundTrip + EarlyWaitLimiter::kSlack;

  EarlyWaitLimiter pace_;
  EarlyWaitLimiter::Clock::time_point now_ = EarlyWaitLimiter::Clock::time_point() + 1h;
};

TEST_F(EarlyWaitLimiterTest, RefusesEarlyAnswerBeforeFirstFence) {
  EXPECT_FALSE(answers(1));
  pace_.fence_took(kRoundTrip);
  EXPECT_TRUE(answers(1));
}

TEST_F(EarlyWaitLimiterTest, RefusesEarlyAnswerForOverdueRecord) {
  pace_.fence_took(kRoundTrip);
  EXPECT_TRUE(answers(1, kBound));
  EXPECT_FALSE(answers(2, kBound + 1us));
}

// Fences that waited for work do not measure the wire.
TEST_F(EarlyWaitLimiterTest, UsesShortestFenceAsRoundTrip) {
  pace_.fence_took(1s);
  pace_.fence_took(kRoundTrip);
  pace_.fence_took(2s);
  EXPECT_FALSE(answers(1, kBound + 1us));
}

// The device is behind, so a call made just now will be late as well.
TEST_F(EarlyWaitLimiterTest, RefusesEarlyAnswerWhileEarlierRecordIsOverdue) {
  pace_.fence_took(kRoundTrip);
  EXPECT_TRUE(answers(1));
  EXPECT_TRUE(answers(2));
  now_ += kBound + 1us;
  EXPECT_FALSE(answers(3));
  pace_.told(1);
  EXPECT_FALSE(answers(3)) << "the second one is as old";
  pace_.told(2);
  EXPECT_TRUE(answers(3));
}

// A record without a reported end (its context has ended) is dropped when a later one is reported.
TEST_F(EarlyWaitLimiterTest, LaterReportDropsEarlierRecords) {
  pace_.fence_took(kRoundTrip);
  EXPECT_TRUE(answers(1));
  EXPECT_TRUE(answers(2));
  now_ += kBound + 1us;
  pace_.told(7);
  EXPECT_TRUE(answers(8));
}

TEST_F(EarlyWaitLimiterTest, LimitsNumberOfEarlyAnswers) {
  pace_.fence_took(kRoundTrip);
  std::uint64_t record = 0;
  for (int round = 0; round < 3; ++round) {
    const std::uint64_t first = record + 1;
    for (std::size_t i = 0; i < EarlyWaitLimiter::kAheadMax; ++i)
      ASSERT_TRUE(answers(++record)) << i;
    EXPECT_FALSE(answers(record + 1));
    pace_.told(first);
    EXPECT_TRUE(answers(++record));
    EXPECT_FALSE(answers(record + 1));
    pace_.told(record);
  }
}

}  // namespace
}  // namespace gpurun::client
