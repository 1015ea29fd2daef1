// Deadline: a deadline passes when it should, and not before.
#include "base/deadline.h"

#include <gtest/gtest.h>

namespace gpurun {
namespace {

// poll(2) takes milliseconds as an int. A far deadline must not overflow into "return at once".
TEST(DeadlineTest, PollTimeoutIsBoundedExceptForNever) {
  EXPECT_EQ(Deadline::never().poll_timeout_ms(), -1);
  EXPECT_EQ(Deadline::in(std::chrono::hours(24 * 365)).poll_timeout_ms(), 3'600'000);
  EXPECT_EQ(Deadline::in(std::chrono::seconds(-1)).poll_timeout_ms(), 0);
  EXPECT_TRUE(Deadline::in(std::chrono::seconds(-1)).passed());
  EXPECT_FALSE(Deadline::never().passed());
}

}  // namespace
}  // namespace gpurun
