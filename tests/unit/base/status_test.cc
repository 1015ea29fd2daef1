// Status and Result: a status keeps its code and its text, a result its value.
#include "base/status.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "base/result.h"

namespace gpurun {
namespace {

// A CUresult of the driver must reach the application unchanged. A Status carries it there.
TEST(StatusTest, KeepsCudaErrorUnchanged) {
  const Status status = Status::cuda(719, "cuLaunchKernel");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), Code::kCuda);
  EXPECT_EQ(status.cuda_error(), 719);
  EXPECT_TRUE(Status::cuda(0, "unused").ok());
}

// Callers treat a closed connection and a slow one differently, so errno must map right.
TEST(StatusTest, MapsErrnoToCode) {
  EXPECT_EQ(Status::from_errno(EPIPE, "send").code(), Code::kPeerGone);
  EXPECT_EQ(Status::from_errno(ECONNREFUSED, "connect").code(), Code::kUnavailable);
  EXPECT_EQ(Status::from_errno(ECONNREFUSED, "connect to x").to_string(),
            "unavailable: connect to x: Connection refused");
}

TEST(ResultTest, ReturnIfErrorPropagatesFailure) {
  const auto fails = []() -> Status {
    GPURUN_RETURN_IF_ERROR(Status(Code::kRefused, "no"));
    return {};
  };
  EXPECT_EQ(fails().code(), Code::kRefused);
  const Result<int> value = 7;
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(*value, 7);
  EXPECT_TRUE(value.status().ok());
}

}  // namespace
}  // namespace gpurun
