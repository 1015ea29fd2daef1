// Protects: a user number is lent to one worker of the whole machine, however many daemons lend
// from one range. When two shared one, the end of the first worker killed the second.
#include "server/daemon/worker_uids.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

namespace gpurun::server {
namespace {

class WorkerUidsTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(mkdtemp(folder_.data()), nullptr); }
  void TearDown() override {
    unlink(claims().c_str());
    rmdir(folder_.c_str());
  }
  std::string claims() const { return folder_ + "/claims"; }

  std::string folder_ = testing::TempDir() + "uids-XXXXXX";
  // Nobody's, and no process is started as one of them here; a free number's return kills nothing.
  const UidRange range_{1'999'999'000, 1'999'999'001};
};

TEST_F(WorkerUidsTest, TwoDaemonsNeverLendTheSameNumber) {
  WorkerUids one(range_, claims());
  WorkerUids two(range_, claims());
  const auto first = one.lend();
  const auto second = two.lend();
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  EXPECT_NE(*first, *second);
  EXPECT_EQ(one.lend().status().code(), Code::kResourceExhausted);
  EXPECT_EQ(two.lend().status().code(), Code::kResourceExhausted);
  one.take_back(*first);
  const auto again = two.lend();
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, *first);
}

TEST_F(WorkerUidsTest, ADaemonThatEndsGivesItsNumbersBack) {
  {
    WorkerUids ended(range_, claims());
    ASSERT_TRUE(ended.lend().ok());
    ASSERT_TRUE(ended.lend().ok());
  }
  WorkerUids next(range_, claims());
  EXPECT_TRUE(next.lend().ok());
  EXPECT_TRUE(next.lend().ok());
}

TEST_F(WorkerUidsTest, AFileThatOthersMayWriteIsRefused) {
  const int file = open(claims().c_str(), O_CREAT | O_RDWR, 0600);
  ASSERT_GE(file, 0);
  ASSERT_EQ(fchmod(file, 0666), 0);
  close(file);
  WorkerUids uids(range_, claims());
  EXPECT_EQ(uids.lend().status().code(), Code::kRefused);
}

TEST_F(WorkerUidsTest, WithoutARangeNothingIsOpened) {
  WorkerUids none(UidRange{0, 0}, "/nowhere/claims");
  const auto uid = none.lend();
  ASSERT_TRUE(uid.ok());
  EXPECT_EQ(*uid, 0u);
  none.take_back(*uid);
}

}  // namespace
}  // namespace gpurun::server
