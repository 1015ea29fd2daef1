// LaunchPool: launches by kernels stay within its bounds, and ended ones return their room.
#include "emulated/runtime/launch_pool.h"

#include <gtest/gtest.h>

#include <vector>

namespace gpurun::emulated {
namespace {

TEST(LaunchPool, EnforcesLaunchLimit) {
  LaunchPool pool;
  std::vector<LaunchPool::Share> taken;
  for (std::size_t i = 0; i < LaunchPool::kLaunchesDefault; ++i) {
    taken.push_back(pool.take_launch());
    ASSERT_TRUE(taken.back());
  }
  EXPECT_FALSE(pool.take_launch());
  taken.pop_back();
  EXPECT_TRUE(pool.take_launch());  // The result is dropped, which returns the room at once.
  pool.set_limit(LaunchPool::kLaunchesDefault + 1);
  taken.push_back(pool.take_launch());
  taken.push_back(pool.take_launch());
  EXPECT_TRUE(taken.back());
  EXPECT_FALSE(pool.take_launch());
  pool.set_limit(0);
  taken.clear();
  EXPECT_FALSE(pool.take_launch());
}

TEST(LaunchPool, CapsLimitAtLaunchesMax) {
  LaunchPool pool;
  pool.set_limit(~std::size_t{0});
  std::vector<LaunchPool::Share> taken;
  while (LaunchPool::Share one = pool.take_launch()) taken.push_back(std::move(one));
  EXPECT_EQ(taken.size(), LaunchPool::kLaunchesMax);
}

TEST(LaunchPool, EnforcesParameterBytesLimit) {
  LaunchPool pool;
  LaunchPool::Share most = pool.take_bytes(LaunchPool::kParameterBytesMax - 1);
  EXPECT_TRUE(most);
  EXPECT_FALSE(pool.take_bytes(2));
  EXPECT_FALSE(pool.take_bytes(~std::size_t{0}));
  EXPECT_TRUE(pool.take_bytes(1));
  most = LaunchPool::Share();
  EXPECT_TRUE(pool.take_bytes(LaunchPool::kParameterBytesMax));
  EXPECT_FALSE(pool.take_bytes(LaunchPool::kParameterBytesMax + 1));
}

}  // namespace
}  // namespace gpurun::emulated
