// CudaDriver: a worker loads nothing else in place of a driver. A wrong path is a clear error at
// start. A relative path is refused, because it could find our own client library.
#include "server/driver/cuda_driver.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpurun::server {
namespace {

TEST(CudaDriver, RelativePathsAreRefused) {
  EXPECT_EQ(CudaDriver::open("libcuda.so.1").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(CudaDriver::open("").status().code(), Code::kInvalidArgument);
}

TEST(CudaDriver, MissingLibraryIsUnavailableAndNamed) {
  const Status status = CudaDriver::open("/nonexistent/libcuda.so.1").status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), testing::HasSubstr("/nonexistent/libcuda.so.1"));
}

TEST(CudaDriver, OtherLibraryIsRefused) {
  Dl_info info{};
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&dlopen), &info), 0);
  const Status status = CudaDriver::open(info.dli_fname).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << info.dli_fname;
}

}  // namespace
}  // namespace gpurun::server
