// Worker user numbers: each is lent to one worker of the whole machine, however many daemons use
// one range. If two workers shared one, the end of the first would kill the second.
#include "server/daemon/workers/worker_uids.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
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
  std::string claims() const { return folder_ + "/worker-uids"; }
  std::shared_ptr<WorkerUids> open_uids() {
    auto uids = WorkerUids::open(range_, folder_);
    EXPECT_TRUE(uids.ok()) << uids.status().to_string();
    return uids.ok() ? *uids : nullptr;
  }

  std::string folder_ = testing::TempDir() + "uids-XXXXXX";
  // An unused range. No process runs as one of them here, so the return of a number kills nothing.
  const UidRange range_{1'999'999'000, 1'999'999'001};
};

TEST_F(WorkerUidsTest, TwoDaemonsNeverLendSameUid) {
  const auto one = open_uids();
  const auto two = open_uids();
  ASSERT_TRUE(one != nullptr && two != nullptr);
  const auto first = one->lend();
  const auto second = two->lend();
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  EXPECT_NE(*first, *second);
  EXPECT_EQ(one->lend().status().code(), Code::kResourceExhausted);
  EXPECT_EQ(two->lend().status().code(), Code::kResourceExhausted);
  one->take_back(*first);
  const auto again = two->lend();
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, *first);
}

TEST_F(WorkerUidsTest, EndedDaemonReturnsItsUids) {
  {
    const auto ended = open_uids();
    ASSERT_NE(ended, nullptr);
    ASSERT_TRUE(ended->lend().ok());
    ASSERT_TRUE(ended->lend().ok());
  }
  const auto next = open_uids();
  ASSERT_NE(next, nullptr);
  EXPECT_TRUE(next->lend().ok());
  EXPECT_TRUE(next->lend().ok());
}

TEST_F(WorkerUidsTest, RefusesFileOrFolderWritableByOthers) {
  const int file = open(claims().c_str(), O_CREAT | O_RDWR, 0600);
  ASSERT_GE(file, 0);
  ASSERT_EQ(fchmod(file, 0666), 0);
  EXPECT_EQ(WorkerUids::open(range_, folder_).status().code(), Code::kRefused);
  ASSERT_EQ(fchmod(file, 0600), 0);
  EXPECT_TRUE(WorkerUids::open(range_, folder_).ok());
  close(file);
  for (const mode_t mode : {0720, 0702}) {
    ASSERT_EQ(chmod(folder_.c_str(), mode), 0);
    EXPECT_EQ(WorkerUids::open(range_, folder_).status().code(), Code::kRefused);
  }
}

TEST_F(WorkerUidsTest, CreatesPrivateFolder) {
  ASSERT_EQ(rmdir(folder_.c_str()), 0);
  ASSERT_TRUE(WorkerUids::open(range_, folder_).ok());
  struct stat facts {};
  ASSERT_EQ(stat(folder_.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0700u);
}

TEST_F(WorkerUidsTest, OpenFailsWhenFolderCannotBeCreated) {
  EXPECT_EQ(WorkerUids::open(range_, "/nowhere/claims").status().code(), Code::kUnavailable);
}

}  // namespace
}  // namespace gpurun::server
