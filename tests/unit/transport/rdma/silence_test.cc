// Silence: a slow device with reports is never taken for a silent one, and each silent one is
// found.
#include "transport/rdma/silence.h"

#include <gtest/gtest.h>

namespace gpurun::transport::rdma {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLittle{1};

class SilenceOfADevice : public ::testing::Test {
 protected:
  void pass(milliseconds time) { now_ += time; }
  void post(std::uint64_t number, bool reports) {
    posted_ = number;
    if (reports) silence_.will_report(number, completed_, now_);
  }
  void report(std::uint64_t number) {
    completed_ = number;
    silence_.reported(now_);
  }
  SilenceStep look() { return silence_.look(posted_, completed_, now_); }

 private:
  Silence silence_;
  Silence::Clock::time_point now_{std::chrono::hours(1)};
  std::uint64_t posted_ = 0;
  std::uint64_t completed_ = 0;
};

TEST_F(SilenceOfADevice, NothingIsOwedWithoutRequests) {
  pass(std::chrono::hours(1));
  EXPECT_EQ(look(), SilenceStep::kNothing);
  post(1, true);
  report(1);
  pass(std::chrono::hours(1));
  EXPECT_EQ(look(), SilenceStep::kNothing);
}

TEST_F(SilenceOfADevice, ReportThatNeverComesIsAFailure) {
  pass(std::chrono::hours(1));
  post(16, true);
  pass(Silence::kSilenceMax);
  EXPECT_EQ(look(), SilenceStep::kNothing);
  pass(kLittle);
  EXPECT_EQ(look(), SilenceStep::kFail);
}

// Requests that follow do not put the failure off.
TEST_F(SilenceOfADevice, LaterRequestsDoNotHideTheSilence) {
  post(16, true);
  pass(Silence::kSilenceMax / 2);
  post(17, false);
  EXPECT_EQ(look(), SilenceStep::kNothing);
  post(32, true);
  pass(Silence::kSilenceMax / 2 + kLittle);
  EXPECT_EQ(look(), SilenceStep::kFail);
}

TEST_F(SilenceOfADevice, EachReportBeginsTheTimeAnew) {
  post(16, true);
  post(32, true);
  pass(Silence::kSilenceMax);
  report(16);
  pass(Silence::kSilenceMax);
  EXPECT_EQ(look(), SilenceStep::kNothing);
  pass(kLittle);
  EXPECT_EQ(look(), SilenceStep::kFail);
}

TEST_F(SilenceOfADevice, QuietSenderAsksForAReportOnce) {
  post(3, false);
  EXPECT_EQ(look(), SilenceStep::kNothing);
  pass(Silence::kQuiet);
  post(4, false);
  EXPECT_EQ(look(), SilenceStep::kNothing);
  pass(Silence::kQuiet + kLittle);
  EXPECT_EQ(look(), SilenceStep::kAskForReport);
  post(5, true);
  EXPECT_EQ(look(), SilenceStep::kNothing);
  pass(Silence::kSilenceMax + kLittle);
  EXPECT_EQ(look(), SilenceStep::kFail);
}

}  // namespace
}  // namespace gpurun::transport::rdma
