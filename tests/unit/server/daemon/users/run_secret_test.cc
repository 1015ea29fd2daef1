// Run secret: the secret that a daemon creates for its run. No other user can read it. The secret
// of an ended daemon is replaced. No other daemon replaces or removes the secret of a living one.
#include "server/daemon/users/run_secret.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace gpurun::server {
namespace {

constexpr std::uint16_t kPort = 4790;

class RunSecretTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(mkdtemp(parent_.data()), nullptr); }
  void TearDown() override {
    unlink(path().c_str());
    EXPECT_EQ(rmdir(folder().c_str()), 0) << "something was left";
    rmdir(parent_.c_str());
  }
  std::string folder() const { return parent_ + "/gpurun"; }
  std::string path() const { return folder() + "/4790.secret"; }
  std::string text() const {
    std::ifstream file(path());
    return {std::istreambuf_iterator<char>(file), {}};
  }
  bool is_there() const { return access(path().c_str(), F_OK) == 0; }
  std::unique_ptr<RunSecret> make() {
    auto secret = RunSecret::create(folder(), kPort);
    EXPECT_TRUE(secret.ok()) << secret.status().to_string();
    return secret.ok() ? *std::move(secret) : nullptr;
  }
  static std::string text_of(const RunSecret& secret) {
    return {reinterpret_cast<const char*>(secret.bytes().data()), secret.bytes().size()};
  }

  std::string parent_ = testing::TempDir() + "run-XXXXXX";
};

TEST_F(RunSecretTest, PrivateFileExistsWhileDaemonRuns) {
  auto secret = make();
  ASSERT_NE(secret, nullptr);
  EXPECT_EQ(secret->bytes().size(), 64u);
  EXPECT_EQ(text(), text_of(*secret));
  struct stat facts {};
  ASSERT_EQ(stat(path().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0600u);
  ASSERT_EQ(stat(folder().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0700u);
  secret.reset();
  EXPECT_FALSE(is_there());
}

TEST_F(RunSecretTest, ReplacesSecretOfEndedDaemon) {
  ASSERT_EQ(mkdir(folder().c_str(), 0700), 0);
  // Also open to others, although no daemon would leave it like that. The new one is not.
  std::ofstream(path()) << "of a daemon that was killed";
  ASSERT_EQ(chmod(path().c_str(), 0666), 0);
  const auto secret = make();
  ASSERT_NE(secret, nullptr);
  EXPECT_EQ(text(), text_of(*secret));
  struct stat facts {};
  ASSERT_EQ(stat(path().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0600u);
}

TEST_F(RunSecretTest, KeepsSecretOfRunningDaemon) {
  const auto first = make();
  ASSERT_NE(first, nullptr);
  const auto second = RunSecret::create(folder(), kPort);
  EXPECT_EQ(second.status().code(), Code::kRefused);
  EXPECT_NE(second.status().message().find(path()), std::string::npos);
  EXPECT_EQ(text(), text_of(*first));
  const auto elsewhere = RunSecret::create(folder(), kPort + 1);
  ASSERT_TRUE(elsewhere.ok()) << elsewhere.status().to_string();
  EXPECT_NE((*elsewhere)->bytes(), first->bytes());
}

// Several daemons on one port of different addresses start at the same instant, as separate
// processes. A later one must not overwrite the file that the earlier one's users will read.
TEST_F(RunSecretTest, OnlyOneConcurrentDaemonCreatesSecret) {
  constexpr int kDaemons = 4;
  constexpr int kRounds = 60;
  for (int round = 0; round < kRounds; ++round) {
    int start[2], told[2], end[2];
    ASSERT_TRUE(pipe(start) == 0 && pipe(told) == 0 && pipe(end) == 0);
    std::vector<pid_t> daemons;
    for (int i = 0; i < kDaemons; ++i) {
      daemons.push_back(fork());
      ASSERT_GE(daemons.back(), 0);
      if (daemons.back() != 0) continue;
      close(start[1]);
      close(end[1]);
      char nothing;
      while (read(start[0], &nothing, 1) > 0) {
      }
      char secret[64] = {};
      const auto made = RunSecret::create(folder(), kPort);
      if (made.ok()) std::memcpy(secret, (*made)->bytes().data(), sizeof secret);
      bool told_all = write(told[1], secret, sizeof secret) == ssize_t{sizeof secret};
      while (read(end[0], &nothing, 1) > 0) {
      }
      _exit(told_all ? 0 : 1);  // For the file this looks like a killed daemon.
    }
    close(start[1]);  // Starts all of them.
    int winners = 0;
    std::string winner;
    for (int i = 0; i < kDaemons; ++i) {
      char secret[64];
      ASSERT_EQ(read(told[0], secret, sizeof secret), ssize_t{sizeof secret});
      if (secret[0] == 0) continue;
      ++winners;
      winner.assign(secret, sizeof secret);
    }
    const std::string kept = text();
    close(end[1]);
    for (const pid_t daemon : daemons) EXPECT_EQ(waitpid(daemon, nullptr, 0), daemon);
    for (const int fd : {start[0], told[0], told[1], end[0]}) close(fd);
    ASSERT_EQ(winners, 1) << "round " << round;
    EXPECT_EQ(kept, winner);
  }
}

TEST_F(RunSecretTest, DestructorKeepsFileOfAnotherDaemon) {
  auto secret = make();
  ASSERT_NE(secret, nullptr);
  ASSERT_EQ(unlink(path().c_str()), 0);
  std::ofstream(path()) << "another's";
  secret.reset();
  EXPECT_EQ(text(), "another's");
}

TEST_F(RunSecretTest, RefusesFolderWritableByOthers) {
  ASSERT_EQ(mkdir(folder().c_str(), 0700), 0);
  ASSERT_EQ(chmod(folder().c_str(), 0770), 0);
  EXPECT_EQ(RunSecret::create(folder(), kPort).status().code(), Code::kRefused);
  ASSERT_EQ(rmdir(folder().c_str()), 0);
  ASSERT_EQ(symlink(parent_.c_str(), folder().c_str()), 0);
  EXPECT_FALSE(RunSecret::create(folder(), kPort).ok());
  ASSERT_EQ(unlink(folder().c_str()), 0);
  ASSERT_EQ(mkdir(folder().c_str(), 0700), 0);
}

}  // namespace
}  // namespace gpurun::server
